"""The artifact store: results of steps, found by a digest of everything that can change them."""

import hashlib
import json
import logging
import os
import platform
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedfisher_core.errors import CorruptArtifactError, InputError

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger("fedfisher")

MANIFEST = "manifest.json"
STAGES = Path("stages")
"""Outputs of DVC's stages, `<experiment>/<stage>/` each in the layout of a store."""
_TEMPORARY = ".writing"


@dataclass(frozen=True)
class Step:
    """A computation whose result can be stored.

    Args:
        kind: what it makes, the folder's name.
        code: digest of the source that makes it.
        settings: what can change the result, JSON.
        inputs: digests of the artifacts that it reads, by role.
    """

    kind: str
    code: str
    settings: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Digest of the step, 24 hexadecimal digits."""
        return _digest([self.kind, self.code, self.settings, self.inputs])[:24]


@dataclass(frozen=True)
class Artifact:
    """A reference to a stored result.

    Args:
        kind: what it is.
        key: digest of the step that made it.
        digest: digest of its content, without timings.
        path: its folder.
    """

    kind: str
    key: str
    digest: str
    path: Path


@dataclass(frozen=True)
class Content:
    """What a step makes.

    Args:
        tensors: safetensors files by name, each with named tensors.
        documents: JSON files by name.
        files: other files by name.
        timings: seconds and bytes that were measured; not part of the digest.
    """

    tensors: Mapping[str, "Mapping[str, Tensor]"] = field(default_factory=dict)
    documents: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)


class Store:
    """A folder of artifacts, `<kind>/<key>/`, that several runs may share.

    Args:
        root: where artifacts are written.
        others: folders of the same layout that are only read, such as the outputs of DVC's stages.
    """

    def __init__(self, root: Path, others: Sequence[Path] = ()) -> None:
        self.root = root
        self._others = tuple(others)

    def prepare(self) -> None:
        """Make sure that the store can be written, and remove what killed runs left half-written.

        Raises:
            InputError: the folder can't be written.
        """
        temporary = self.root / _TEMPORARY
        try:
            temporary.mkdir(parents=True, exist_ok=True)
            probe = temporary / f"{os.getpid()}-probe"
            probe.write_bytes(b"")
            probe.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f"run.store={str(self.root)!r} can't be written: {error.strerror}") from error
        for leftover in temporary.iterdir():
            owner = leftover.name.split("-")[0]
            if owner.isdecimal() and not _alive(int(owner)):
                if leftover.is_dir():
                    shutil.rmtree(leftover, ignore_errors=True)
                else:
                    leftover.unlink(missing_ok=True)

    def find(self, step: Step) -> Artifact | None:
        """Look for the result of a step.

        Args:
            step: the computation.

        Returns:
            The artifact, verified; None if there is none, or if it was corrupted and had to be removed.
        """
        for root in (self.root, *self._others):
            path = root / step.kind / step.key
            if not path.is_dir():
                continue
            try:
                return _verify(path)
            except CorruptArtifactError as error:
                log.warning("%s; it is computed again", error)
                if root == self.root:
                    shutil.rmtree(path, ignore_errors=True)
        return None

    def write(self, step: Step, content: Content) -> Artifact:
        """Store the result of a step: all of it, or nothing.

        Args:
            step: the computation.
            content: its result.

        Returns:
            The artifact.
        """
        temporary = self.root / _TEMPORARY / f"{os.getpid()}-{uuid.uuid4().hex}"
        temporary.mkdir(parents=True)
        from safetensors.torch import save

        files: dict[str, bytes] = {name: save(dict(tensors)) for name, tensors in content.tensors.items()}
        files |= {name: _json(document).encode() for name, document in content.documents.items()}
        files |= content.files
        for name, data in files.items():
            (temporary / name).write_bytes(data)
        manifest: dict[str, Any] = {
            "kind": step.kind,
            "key": step.key,
            "code": step.code,
            "settings": step.settings,
            "inputs": step.inputs,
            "files": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
            "timings": content.timings,
            "libraries": libraries(),
        }
        manifest["seal"] = _digest(manifest)
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
        path = self.root / step.kind / step.key
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.rename(path)
        except OSError:
            # Another run stored the same result meanwhile; rename never replaces a folder that holds something.
            shutil.rmtree(temporary)
            if not path.is_dir():
                raise
        return _verify(path)

    def reachable(self, keys: Sequence[str]) -> set[Path]:
        """Follow artifacts to everything that they were made from.

        Args:
            keys: of artifacts in this store.

        Returns:
            Folders of the artifacts and of all their inputs, direct and indirect. Artifacts of equal content can't be
            told apart as inputs: all of them count. Those without a readable manifest are no artifacts.
        """
        inputs: dict[Path, Iterable[str]] = {}
        by_digest: dict[str, list[Path]] = {}
        for path in self.folders():
            try:
                manifest = _manifest(path)
            except CorruptArtifactError as error:
                log.warning("%s; it is passed over", error)
                continue
            inputs[path] = manifest["inputs"].values()
            by_digest.setdefault(_content_digest(manifest), []).append(path)
        found: set[Path] = set()
        wanted = set(keys)
        todo = [path for path in inputs if path.name in wanted]
        while todo:
            path = todo.pop()
            if path not in found:
                found.add(path)
                todo += [one for digest in inputs[path] for one in by_digest.get(digest, [])]
        return found

    def folders(self) -> list[Path]:
        """List the folders of all artifacts."""
        return [path.parent for path in sorted(self.root.glob(f"*/*/{MANIFEST}")) if path.parts[-3] != _TEMPORARY]

    def remove(self, folders: Iterable[Path]) -> None:
        """Remove artifacts.

        Args:
            folders: some of those that `folders` lists.
        """
        for path in folders:
            shutil.rmtree(path)


def open_store(root: Path) -> Store:
    """Open the store of a run, in the working directory.

    Args:
        root: the setting `run.store`.

    Returns:
        The store; outputs of DVC's stages, which `dvc pull` may have brought, are read as well.
    """
    return Store(root, others=sorted(STAGES.glob("*/*/")))


def read_tensors(artifact: Artifact, name: str) -> "dict[str, Tensor]":
    """Read one safetensors file of an artifact.

    Args:
        artifact: the artifact.
        name: the file's name.

    Returns:
        Its named tensors.

    Raises:
        CorruptArtifactError: the file is not what was written.
    """
    # Settings can be checked, and artifacts looked for, without torch.
    from safetensors.torch import load

    return load(_read(artifact.path, name, _manifest(artifact.path)))


def read_document(artifact: Artifact, name: str) -> Any:
    """Read one JSON file of an artifact.

    Args:
        artifact: the artifact.
        name: the file's name.

    Returns:
        Its content.

    Raises:
        CorruptArtifactError: the file is not what was written.
    """
    return json.loads(_read(artifact.path, name, _manifest(artifact.path)))


def read_timings(artifact: Artifact) -> dict[str, float]:
    """Read what was measured when an artifact was made.

    Args:
        artifact: the artifact.

    Returns:
        Seconds and bytes by name.
    """
    return _manifest(artifact.path)["timings"]


def _verify(path: Path) -> Artifact:
    manifest = _manifest(path)
    if manifest["kind"] != path.parent.name or manifest["key"] != path.name:
        raise CorruptArtifactError(f"artifact {path} says it is {manifest['kind']}/{manifest['key']}")
    for name in manifest["files"]:
        _read(path, name, manifest)
    return Artifact(kind=manifest["kind"], key=manifest["key"], digest=_content_digest(manifest), path=path)


def _content_digest(manifest: Mapping[str, Any]) -> str:
    return _digest(manifest["files"])[:24]


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        seal = manifest.pop("seal")
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise CorruptArtifactError(f"artifact {path} has no readable {MANIFEST} ({error})") from error
    if seal != _digest(manifest):
        raise CorruptArtifactError(f"artifact {path}: {MANIFEST} was changed")
    return manifest


def _read(path: Path, name: str, manifest: Mapping[str, Any]) -> bytes:
    try:
        data = (path / name).read_bytes()
    except OSError as error:
        raise CorruptArtifactError(f"artifact {path}: {name} can't be read ({error})") from error
    if hashlib.sha256(data).hexdigest() != manifest["files"][name]:
        raise CorruptArtifactError(f"artifact {path}: {name} was changed")
    return data


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _digest(value: Any) -> str:
    return hashlib.sha256(_json(value).encode()).hexdigest()


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@cache
def libraries() -> dict[str, str]:
    """Versions of what results depend on."""
    names = ("torch", "torchvision", "numpy", "scipy", "nngeometry", "POT", "opacus", "fedfisher")
    return {"python": platform.python_version(), **{name: _version(name) for name in names}}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
