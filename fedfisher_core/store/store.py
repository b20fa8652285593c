"""The artifact store: results of steps, found by a digest of everything that can change them."""

import logging
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

from fedfisher_core.errors import CorruptArtifactError, UnwritableError
from fedfisher_core.locks import held
from fedfisher_core.store.lease import Lease, leased
from fedfisher_core.store.manifest import content_digest, read_manifest, sealed
from fedfisher_core.store.marks import Mark
from fedfisher_core.store.reading import look_up
from fedfisher_core.store.shedding import has_large_files, put_back, shed
from fedfisher_core.store.step import Artifact, Content, Step
from fedfisher_core.store.tracing import manifests_in, reached, warn
from fedfisher_core.store.writing import new_folder, remove_entry, require_folder, sweep

log = logging.getLogger("fedfisher")

STAGES = Path("stages")
"""Outputs of DVC's stages, `<experiment>/<stage>/` each in the layout of a store."""
_WRITING = ".writing"
_LOCKS = ".locks"
_LEASE_SECONDS = 60
_ALONE_SECONDS = 5
_REMOVAL_SECONDS = 60
_ROOM_MIB = 16


class Store:
    """A folder of artifacts, `<kind>/<key>/`, that several runs may share.

    Args:
        root: where artifacts are written.
        others: folders of the same layout that are only read, such as the outputs of DVC's stages.
    """

    _setting = "run.store"
    """Names the folder that is written, for messages."""

    def __init__(self, root: Path, others: Sequence[Path] = ()) -> None:
        self.root = root
        self._others = tuple(others)

    @property
    def place(self) -> str:
        """The setting that names it, for messages."""
        return f"run.store={str(self.root)!r}"

    def absolute(self) -> "Store":
        """The same store for processes of whatever working directory."""
        return Store(self.root.absolute(), [other.absolute() for other in self._others])

    def prepare(self) -> None:
        """Make sure that the store can be written, and remove what killed runs left half-written.

        Raises:
            InputError: the folder can't be written.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            require_folder(self.root / _WRITING)
            require_folder(self.root / _LOCKS)
            sweep(self.root / _WRITING)
            with tempfile.TemporaryFile(dir=self.root / _WRITING) as probe:
                probe.write(b"\0")
        except OSError as error:
            raise self._unwritable(error) from error

    def in_use(self, purpose: str) -> AbstractContextManager[None]:
        """Keep everything in the store until the block ends: nobody is alone with it meanwhile.

        Args:
            purpose: what for, for the message that others get.

        Raises:
            LockedError: someone is alone with the store and stays so for long.
        """
        return held(self.root / _LOCKS / "use.lock", purpose=purpose, timeout=_LEASE_SECONDS, shared=True)

    @contextmanager
    def rested_on(self, purpose: str) -> Iterator[Lease]:
        """Keep everything in the store as `in_use` does, and no other run sheds anything until the block ends.

        Args:
            purpose: what for, for the message that others get.

        Yields:
            What the run needs to shed artifacts itself.

        Raises:
            LockedError: someone is alone with the store and stays so for long.
        """
        with self.in_use(purpose), leased(self.root / _LOCKS, timeout=_LEASE_SECONDS) as lease:
            yield lease

    def alone(self, purpose: str) -> AbstractContextManager[None]:
        """Keep everyone else from using the store until the block ends.

        Args:
            purpose: what for, for the message that others get.

        Raises:
            LockedError: the store is in use.
        """
        return held(self.root / _LOCKS / "use.lock", purpose=purpose, timeout=_ALONE_SECONDS)

    @contextmanager
    def marked(self) -> Iterator[Mark]:
        """Put something into the store that only those who see it can read back, until the block ends.

        Yields:
            What it is.
        """
        mark = Mark.new()
        self.root.mkdir(parents=True, exist_ok=True)
        path = self.root / mark.name
        path.write_text(mark.said)
        try:
            yield mark
        finally:
            path.unlink(missing_ok=True)

    def sees(self, mark: Mark) -> bool:
        """Say whether a process that marked its store sees the same.

        Args:
            mark: its mark.
        """
        try:
            return (self.root / mark.name).read_text() == mark.said
        except OSError:
            return False

    def find(self, step: Step) -> Artifact | None:
        """Look for the result of a step.

        Args:
            step: the computation.

        Returns:
            The artifact, verified; shed only where it is whole nowhere; None if there is none, or if it was not intact
            and had to be removed.

        Raises:
            InputError: it is not intact and can't be removed.
        """
        return self.find_pulled(step, self._find_own(step))

    def find_pulled(self, step: Step, found: Artifact | None = None) -> Artifact | None:
        """Look for the result of a step in the folders that are only read.

        Args:
            step: the computation.
            found: what the folder that is written has of it.

        Returns:
            The artifact, verified, that is whole, or else what was found before.
        """
        for root in self._others:
            if found is not None and not found.shed:
                break
            try:
                other = look_up(root / step.kind / step.key)
            except CorruptArtifactError as error:
                warn(f"{error}; it is computed again")
                continue
            # What was made of a shed one is named by its digest.
            if found is None or (other is not None and other == replace(found, path=other.path, shed=False)):
                found = other
        return found

    def require_room(self) -> None:
        """Check that the disk is not full, before what could not be kept is computed.

        Raises:
            InputError: it is, or the store can't be written.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            left = shutil.disk_usage(self.root).free / 2**20
        except OSError as error:
            raise self._unwritable(error) from error
        if left < _ROOM_MIB:
            raise UnwritableError(
                f"{self._setting}={str(self.root)!r} is on a disk with {left:.1f} MiB left; allowed: {_ROOM_MIB} or "
                "more, as nothing is computed that can't be kept"
            )

    def write(self, step: Step, content: Content) -> Artifact:
        """Store the result of a step: all of it, or nothing. What was shed before is whole again.

        Args:
            step: the computation.
            content: its result.

        Returns:
            The artifact.

        Raises:
            InputError: the store can't be written, such as where the disk is full.
        """
        files, digests = sealed(step, content)
        path = self._path(step)
        try:
            (self.root / _WRITING).mkdir(parents=True, exist_ok=True)
            with new_folder(self.root / _WRITING) as temporary:
                for name, data in files.items():
                    (temporary / name).write_bytes(data)
                found = self._find_own(step)
                if found is not None and not found.shed:
                    # Another run stored the same result meanwhile.
                    return found
                if found is not None and (manifest := read_manifest(path)).describes(files):
                    put_back(path, manifest, temporary)
                else:
                    self._remove_shed(found)
                    path.parent.mkdir(exist_ok=True)
                    if self._move(temporary, path):
                        # It is what was just sealed: to read it back would take as long as to write it.
                        return Artifact(step.kind, path.name, content_digest(digests), path)
        except OSError as error:
            raise self._unwritable(error) from error
        made = look_up(path)
        if made is None:
            raise CorruptArtifactError(f"artifact {path} was removed as soon as it was written")
        return made

    def can_shed(self, artifact: Artifact) -> bool:
        """Say whether an artifact has files in the folder that is written which would go if it were shed."""
        return artifact.path == self.root / artifact.kind / artifact.key and has_large_files(artifact.path)

    def shed(self, artifacts: Iterable[Artifact]) -> Iterator[tuple[Artifact, int]]:
        """Remove the tensors and other large files of artifacts. Manifests and documents stay, and so do digests.

        Args:
            artifacts: which `can_shed`, and which no run needs.

        Yields:
            Each as it is then, and the bytes that it had.

        Raises:
            InputError: the store can't be written.
            CorruptArtifactError: an artifact is not what was written.
        """
        try:
            with new_folder(self.root / _WRITING) as temporary:
                for artifact in artifacts:
                    manifest = read_manifest(artifact.path)
                    freed = shed(artifact.path, manifest, temporary)
                    yield manifest.artifact(artifact.path, shed=True), freed
        except OSError as error:
            raise self._unwritable(error) from error

    def reachable(self, keys: Sequence[str]) -> set[Path]:
        """Follow artifacts to everything that they were made from.

        Args:
            keys: of artifacts in this store.

        Returns:
            Folders of the artifacts, of all their inputs, direct and indirect, and of what was measured of any.
            Artifacts of equal content can't be told apart as inputs: all of them count.
        """
        return reached(manifests_in(self.root), keys)

    def folders(self) -> list[Path]:
        """List the folders of all artifacts; what has no readable manifest is none."""
        return list(manifests_in(self.root))

    def remove(self, folders: Iterable[Path]) -> None:
        """Remove artifacts.

        Args:
            folders: some of those that `folders` lists.

        Raises:
            InputError: one can't be removed.
        """
        for path in folders:
            remove_entry(path)

    def _path(self, step: Step) -> Path:
        return self.root / step.kind / step.key

    def _find_own(self, step: Step) -> Artifact | None:
        """Look for a result in the folder that is written; what is not intact is removed."""
        path = self._path(step)
        try:
            return look_up(path)
        except CorruptArtifactError as error:
            log.debug("%s", error)
        purpose = "removal of a damaged artifact"
        with held(self.root / _LOCKS / "removal.lock", purpose=purpose, timeout=_REMOVAL_SECONDS):
            try:
                # Another process may have removed it meanwhile, and made it again.
                return look_up(path)
            except CorruptArtifactError as error:
                warn(f"{error}; it is computed again")
                is_folder = path.parent.is_dir() and not path.parent.is_symlink()
                remove_entry(path if is_folder else path.parent)
        return None

    def _remove_shed(self, found: Artifact | None) -> None:
        """Make room for a result in the place of a shed one that was another."""
        if found is None:
            return
        with held(self.root / _LOCKS / "removal.lock", purpose="removal of a shed artifact", timeout=_REMOVAL_SECONDS):
            # Another process may have made it again meanwhile.
            if look_up(found.path) == found:
                remove_entry(found.path)

    def _move(self, temporary: Path, path: Path) -> bool:
        """Give a new artifact its place, unless another run stored the same result meanwhile."""
        try:
            temporary.rename(path)
        except OSError:
            # Rename never replaces a folder that holds something.
            if not path.is_dir():
                raise
            return False
        return True

    def _unwritable(self, error: OSError) -> UnwritableError:
        return UnwritableError(f"{self._setting}={str(self.root)!r} can't be written: {error.strerror}")
