"""The artifact store: results of steps, found by a digest of everything that can change them."""

import hashlib
import logging
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

from fedfisher_core.errors import CorruptArtifactError, InputError
from fedfisher_core.locks import held
from fedfisher_core.store.lease import Lease, leased
from fedfisher_core.store.manifest import MANIFEST, Manifest, content_digest, manifest_of, read_manifest
from fedfisher_core.store.reading import look_up
from fedfisher_core.store.shedding import has_large_files, put_back, shed
from fedfisher_core.store.step import Artifact, Content, Step, as_json
from fedfisher_core.store.writing import new_folder, remove_entry, require_folder, sweep

log = logging.getLogger("fedfisher")

STAGES = Path("stages")
"""Outputs of DVC's stages, `<experiment>/<stage>/` each in the layout of a store."""
_WRITING = ".writing"
_LOCKS = ".locks"
_LEASE_SECONDS = 60
_ALONE_SECONDS = 5
_REMOVAL_SECONDS = 60
_MOST_CHARACTERS = 500


class Store:
    """A folder of artifacts, `<kind>/<key>/`, that several runs may share.

    Args:
        root: where artifacts are written.
        others: folders of the same layout that are only read, such as the outputs of DVC's stages.
    """

    def __init__(self, root: Path, others: Sequence[Path] = ()) -> None:
        self.root = root
        self._others = tuple(others)

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
        found = self._find_own(step)
        for root in self._others:
            if found is not None and not found.shed:
                break
            try:
                other = look_up(root / step.kind / step.key)
            except CorruptArtifactError as error:
                _warn(f"{error}; it is computed again")
                continue
            # What was made of a shed one is named by its digest.
            if found is None or (other is not None and other == replace(found, path=other.path, shed=False)):
                found = other
        return found

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
        from safetensors.torch import save

        files: dict[str, bytes] = {name: save(dict(tensors)) for name, tensors in content.tensors.items()}
        files |= {name: as_json(document) for name, document in content.documents.items()}
        files |= content.files
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        files[MANIFEST] = manifest_of(step, digests, content.timings)
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
                if found is not None and found.digest == content_digest(digests):
                    put_back(path, read_manifest(path), temporary)
                else:
                    self._remove_shed(found)
                    path.parent.mkdir(exist_ok=True)
                    self._move(temporary, path)
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
            Folders of the artifacts and of all their inputs, direct and indirect. Artifacts of equal content can't be
            told apart as inputs: all of them count.
        """
        manifests = self._manifests()
        by_digest: dict[str, list[Path]] = {}
        for path, manifest in manifests.items():
            by_digest.setdefault(manifest.artifact(path).digest, []).append(path)
        found: set[Path] = set()
        wanted = set(keys)
        todo = [path for path in manifests if path.name in wanted]
        while todo:
            path = todo.pop()
            if path not in found:
                found.add(path)
                todo += [one for digest in manifests[path].inputs.values() for one in by_digest.get(digest, [])]
        return found

    def folders(self) -> list[Path]:
        """List the folders of all artifacts; what has no readable manifest is none."""
        return list(self._manifests())

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
                _warn(f"{error}; it is computed again")
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

    def _move(self, temporary: Path, path: Path) -> None:
        try:
            temporary.rename(path)
        except OSError:
            # Another run stored the same result meanwhile; rename never replaces a folder that holds something.
            if not path.is_dir():
                raise

    def _manifests(self) -> dict[Path, Manifest]:
        found = {}
        for kind in _folders_in(self.root):
            for path in _folders_in(kind):
                try:
                    if os.path.lexists(path / MANIFEST):
                        found[path] = read_manifest(path)
                except CorruptArtifactError as error:
                    _warn(f"{error}; it is passed over")
        return found

    def _unwritable(self, error: OSError) -> InputError:
        return InputError(f"run.store={str(self.root)!r} can't be written: {error.strerror}")


def open_store(root: Path) -> Store:
    """Open the store of a run, in the working directory.

    Args:
        root: the setting `run.store`.

    Returns:
        The store; outputs of DVC's stages, which `dvc pull` may have brought, are read as well.
    """
    return Store(root, others=[stage for experiment in _folders_in(STAGES) for stage in _folders_in(experiment)])


def _folders_in(folder: Path) -> list[Path]:
    """List the visible folders in one, without those that links point to."""
    try:
        with os.scandir(folder) as entries:
            return sorted(
                folder / entry.name
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
            )
    except FileNotFoundError:
        return []
    except OSError as error:
        _warn(f"{folder} can't be read: {error.strerror}; it is passed over")
        return []


@cache
def _warn(message: str) -> None:
    """Warn once a process, however often an artifact is looked for."""
    printable = "".join(character if character.isprintable() else "?" for character in message)
    log.warning("%s", printable[:_MOST_CHARACTERS])
