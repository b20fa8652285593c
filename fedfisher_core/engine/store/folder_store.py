"""The artifact store: results of jobs, found by a digest of everything that can change them."""

import json
import logging
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from fedfisher_core.engine.errors import CorruptArtifactError, InputError, UnwritableError
from fedfisher_core.engine.files import parse_json, read_regular, replace_file
from fedfisher_core.engine.locks import held, sharing, take
from fedfisher_core.engine.store.manifest import Artifact, Content, Recipe, content_digest, sealed
from fedfisher_core.engine.store.reading import (
    folders_in,
    is_of_old_layout,
    look_up,
    manifest_at,
    manifests_in,
    reached,
    warn,
)
from fedfisher_core.engine.store.writing import Mark, new_folder, remove_entry, require_folder, sweep

log = logging.getLogger("fedfisher")

STAGES = Path("stages")
"""Outputs of DVC's stages: one folder for each experiment, in the layout of a store."""
_WRITING = ".writing"
_LOCKS = ".locks"
_VERSIONS = ".versions.json"
NOTE_BYTES = 2**16
"""The most bytes of a note in the store."""
_LEASE_SECONDS = 60
_ALONE_SECONDS = 5
_REMOVAL_SECONDS = 60
_ROOM_MIB = 16


class Store:
    """A folder of artifacts, `<kind>/<key>/`, that several runs may share.

    Methods that write raise `InputError` where they can't, such as where the disk is full. A lock's `purpose` is named
    in the message that other processes get.

    Args:
        others: folders of the same layout that are only read, such as the outputs of DVC's stages.
    """

    _setting = "run.store"
    """The setting that messages name."""

    def __init__(self, root: Path, others: Sequence[Path] = ()) -> None:
        self.root = root
        self._others = tuple(others)

    @property
    def location(self) -> str:
        """The setting that names the location, with its value, for messages."""
        return f"run.store={str(self.root)!r}"

    def absolute(self) -> "Store":
        """Return the same store for processes with another working directory."""
        return Store(self.root.absolute(), [other.absolute() for other in self._others])

    def prepare(self) -> None:
        """Check that the store can be written and has no earlier layout, and delete the leftovers of killed runs."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            require_folder(self.root / _WRITING)
            require_folder(self.root / _LOCKS)
            sweep(self.root / _WRITING)
            with tempfile.TemporaryFile(dir=self.root / _WRITING) as probe:
                probe.write(b"\0")
        except OSError as error:
            raise self._unwritable(error) from error
        self._require_layout()

    def _require_layout(self) -> None:
        """Refuse artifacts that earlier versions of this project named by their code."""
        for kind in folders_in(self.root):
            for path in folders_in(kind)[:1]:
                if is_of_old_layout(path):
                    raise InputError(
                        f"{self.location} holds artifacts of an earlier layout, which are not read; allowed: another "
                        "folder, or this one after `fedfisher store prune`"
                    )

    def require_versions(self, versions: Mapping[str, int]) -> None:
        """Refuse code that is older than what made results here.

        Args:
            versions: by name of the job's class.

        Raises:
            InputError: a version is lower than the highest that was noted.
        """
        noted = self._noted_versions()
        for name, version in versions.items():
            if noted.get(name, version) > version:
                raise InputError(
                    f"{self.location} has results of {name} by version {noted[name]} of its code, which is version "
                    f"{version} here; allowed: the newer code, or another run.store"
                )

    def note_versions(self, versions: Mapping[str, int]) -> None:
        """Note the versions of the code that makes results from now on; see `require_versions`."""
        lock, purpose = self.root / _LOCKS / "versions.lock", "note of the code's versions"
        # Two runs that begin at once on this folder must not lose each other's.
        with held(lock, purpose=purpose, timeout=_REMOVAL_SECONDS):
            noted = self._noted_versions()
            if raised := {name: version for name, version in versions.items() if noted.get(name, 0) < version}:
                self._write_note(_VERSIONS, json.dumps(noted | raised, sort_keys=True).encode())

    def _noted_versions(self) -> dict[str, int]:
        try:
            noted = parse_json(self._read_note(_VERSIONS) or b"{}")
        except InputError:
            raise
        except PermissionError as error:
            raise InputError(f"{self.location}: {_VERSIONS!r} can't be read: {error.strerror}") from error
        except (ValueError, OSError, CorruptArtifactError):
            noted = None
        if not isinstance(noted, dict) or not all(type(one) is int for one in noted.values()):
            raise InputError(f"{self.location} has a damaged note {_VERSIONS!r}; allowed: to delete it")
        return noted

    def _read_note(self, name: str) -> bytes | None:
        path = self.root / name
        return read_regular(path, limit=NOTE_BYTES) if path.exists() else None

    def _write_note(self, name: str, text: bytes) -> None:
        try:
            replace_file(self.root / name, text, unfinished=self.root / _WRITING)
        except OSError as error:
            raise self._unwritable(error) from error

    def in_use(self, purpose: str) -> AbstractContextManager[object]:
        """Keep everything in the store until the block ends; `LockedError` if `alone` holds it for too long."""
        return held(self.root / _LOCKS / "use.lock", purpose=purpose, timeout=_LEASE_SECONDS, shared=True)

    @contextmanager
    def used_by_run(self, purpose: str) -> Iterator[Path]:
        """Keep everything in the store, as `in_use` does, and let no other run delete results until the block ends.

        Yields:
            The lock that `only_user` takes.
        """
        runs = held(self._runs, purpose=purpose, timeout=_LEASE_SECONDS, shared=True)
        with self.in_use(purpose), runs as run:
            yield run

    @contextmanager
    def only_user(self, run: Path) -> Iterator[bool]:
        """Say whether no other run uses the store; if so, none begins until the block ends."""
        lock = take(self._runs)
        if lock is None:
            # Another run begins, or asks.
            yield False
            return
        with lock:
            yield sharing(self._runs) == {run}

    @property
    def _runs(self) -> Path:
        return self.root / _LOCKS / "runs.lock"

    def alone(self, purpose: str) -> AbstractContextManager[object]:
        """Keep all other processes from using the store until the block ends; `LockedError` if one uses it."""
        return held(self.root / _LOCKS / "use.lock", purpose=purpose, timeout=_ALONE_SECONDS)

    @contextmanager
    def marked(self) -> Iterator[Mark]:
        """Put a file into the store until the block ends, by which a process can show that it sees the same store."""
        mark = Mark.new()
        self.root.mkdir(parents=True, exist_ok=True)
        path = self.root / mark.name
        path.write_text(mark.said)
        try:
            yield mark
        finally:
            path.unlink(missing_ok=True)

    def sees(self, mark: Mark) -> bool:
        """Say whether this process sees the store that a mark was put into."""
        try:
            return (self.root / mark.name).read_text() == mark.said
        except OSError:
            return False

    def find(self, recipe: Recipe) -> Artifact | None:
        """Look for a result and verify it; None if there is none, or if it was damaged and is now deleted."""
        return self._find_own(recipe.kind, recipe.key) or self.find_pulled(recipe)

    def find_pulled(self, recipe: Recipe) -> Artifact | None:
        """Look for a result in the folders that are only read, and verify it; None if there is no intact one."""
        for root in self._others:
            try:
                if (found := look_up(root / recipe.kind / recipe.key)) is not None:
                    return found
            except CorruptArtifactError as error:
                warn(f"{error}; it is computed again")
        return None

    def refer(self, kind: str, key: str) -> Artifact | None:
        """Refer to a result, whose files are verified when they are read; None if there is none."""
        for root in (self.root, *self._others):
            try:
                if (manifest := manifest_at(root / kind / key)) is not None:
                    return manifest.artifact(root / kind / key)
            except CorruptArtifactError as error:
                warn(f"{error}; it is computed again")
        return None

    def has(self, kind: str, key: str) -> bool:
        """Say whether the folder that is written holds a result, which may be deleted."""
        return (self.root / kind / key).is_dir()

    def delete(self, kind: str, key: str) -> int:
        """Delete a result, and return the bytes that the disk gains; a file with a further link counts zero."""
        path = self.root / kind / key
        try:
            with new_folder(self.root / _WRITING) as temporary:
                # A rename is one step, so a kill leaves no half of the artifact.
                path.rename(temporary / key)
                sizes = [file.lstat() for file in (temporary / key).iterdir()]
        except OSError as error:
            raise self._unwritable(error) from error
        return sum(one.st_size for one in sizes if one.st_nlink == 1)

    def require_room(self) -> None:
        """Check that the disk is not full, before a job computes what could not be kept."""
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

    def write(self, recipe: Recipe, content: Content) -> Artifact:
        """Store a result: all of it, or nothing."""
        files, digests = sealed(recipe, content)
        path = self.root / recipe.kind / recipe.key
        try:
            (self.root / _WRITING).mkdir(parents=True, exist_ok=True)
            with new_folder(self.root / _WRITING) as temporary:
                for name, data in files.items():
                    (temporary / name).write_bytes(data)
                if (found := self._find_own(recipe.kind, recipe.key)) is not None:
                    # Another run stored the same result meanwhile.
                    return found
                path.parent.mkdir(exist_ok=True)
                if self._move(temporary, path):
                    # It was sealed just now. To read it back would take as long as to write it.
                    return Artifact(recipe.kind, path.name, content_digest(digests), path)
        except OSError as error:
            raise self._unwritable(error) from error
        made = look_up(path)
        if made is None:
            raise CorruptArtifactError(f"artifact {path} was removed as soon as it was written")
        return made

    def reachable(self, keys: Sequence[str]) -> set[Path]:
        """Return the folders of artifacts, of all their direct and indirect inputs, and of what was measured of any."""
        return reached(manifests_in(self.root), keys)

    def damaged(self, keys: Sequence[str]) -> list[Path]:
        """List the folders, among those of some artifacts and of all their inputs, whose manifest can't be read."""
        manifests = manifests_in(self.root)
        wanted = {*keys, *(key for path in reached(manifests, keys) for key in manifests[path].inputs.values())}
        folders = [path for kind in folders_in(self.root) for path in folders_in(kind) if path.name in wanted]
        return [path for path in folders if path not in manifests and not is_of_old_layout(path)]

    def folders(self) -> list[Path]:
        """List the folders of all artifacts, those of an earlier layout included. Other folders are not listed."""
        old = [path for kind in folders_in(self.root) for path in folders_in(kind) if is_of_old_layout(path)]
        return [*manifests_in(self.root), *old]

    def remove(self, folders: Iterable[Path]) -> None:
        """Delete artifacts, by folders that `folders` lists."""
        for path in folders:
            remove_entry(path)

    def _find_own(self, kind: str, key: str) -> Artifact | None:
        """Look for a result in the folder that is written, and delete it if it is damaged."""
        path = self.root / kind / key
        try:
            return look_up(path)
        except CorruptArtifactError as error:
            log.debug("%s", error)
        purpose = "removal of a damaged artifact"
        with held(self.root / _LOCKS / "removal.lock", purpose=purpose, timeout=_REMOVAL_SECONDS):
            try:
                # Another process may have deleted it meanwhile, and made it again.
                return look_up(path)
            except CorruptArtifactError as error:
                warn(f"{error}; it is computed again")
                is_folder = path.parent.is_dir() and not path.parent.is_symlink()
                remove_entry(path if is_folder else path.parent)
        return None

    def _move(self, temporary: Path, path: Path) -> bool:
        """Move a new artifact to its location; False where another run has stored the same result meanwhile."""
        try:
            temporary.rename(path)
        except OSError:
            # A rename never replaces a folder that holds something.
            if not path.is_dir():
                raise
            return False
        return True

    def _unwritable(self, error: OSError) -> UnwritableError:
        return UnwritableError(f"{self._setting}={str(self.root)!r} can't be written: {error.strerror}")
