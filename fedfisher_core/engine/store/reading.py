"""Reading artifacts, whose files are verified by their digests, and what a folder of artifacts holds.

What reads an artifact raises `CorruptArtifactError` where a file is missing or is not what its manifest says, and
`BucketError` where a bucket does not answer.
"""

import logging
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from safetensors import SafetensorError, safe_open

from fedfisher_core.engine.errors import CorruptArtifactError, InputError, in_one_line
from fedfisher_core.engine.files import open_regular, parse_json, read_regular
from fedfisher_core.engine.store.caching import bytes_of, manifest_here, path_of
from fedfisher_core.engine.store.manifest import (
    MANIFEST,
    MOST_BYTES,
    MOST_MANIFEST_BYTES,
    Artifact,
    Manifest,
    file_has_digest,
    has_digest,
    read_manifest,
)

# Settings, rows and pages are read without torch, which takes seconds.
if TYPE_CHECKING:
    from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("fedfisher")
_MOST_CHARACTERS = 500
_MEASURED = "aggregate"
"""The role of the input of a measurement."""


def understood(read: Callable[Concatenate[Artifact, P], T]) -> Callable[Concatenate[Artifact, P], T]:
    """Have a function that reads an artifact raise `InputError`, with the folder, where the content can't be used.

    Every rerun finds an intact artifact again, so one with the wrong content has to be removed by hand.
    """

    @wraps(read)
    def reading(artifact: Artifact, /, *others: P.args, **named: P.kwargs) -> T:
        try:
            return read(artifact, *others, **named)
        except InputError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"artifact {artifact.path} is intact, but no {artifact.kind} that can be used: {in_one_line(error)}; "
                "allowed: to remove this folder and start again"
            ) from error

    return reading


def look_up(path: Path) -> Artifact | None:
    """Verify the artifact in a folder `<store>/<kind>/<key>`; None if there is nothing."""
    manifest = manifest_at(path)
    if manifest is None:
        return None
    for name, expected in manifest.files.items():
        _check(path, name, expected)
    return manifest.artifact(path)


def manifest_at(path: Path) -> Manifest | None:
    """Read the manifest of the artifact in a folder `<store>/<kind>/<key>`; None if there is nothing."""
    for folder in (path.parent, path):
        try:
            mode = folder.lstat().st_mode
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CorruptArtifactError(f"artifact {path} can't be read: {error.strerror}") from error
        if not stat.S_ISDIR(mode):
            raise CorruptArtifactError(f"artifact {path} can't be read: {folder} is no folder")
    return read_manifest(path)


def read_tensors(artifact: Artifact, name: str) -> "dict[str, Tensor]":
    """Read the named tensors of one safetensors file of an artifact."""
    # Settings can be checked, and artifacts looked for, without torch.
    from safetensors.torch import load

    tensors: dict[str, Tensor] = load(read_bytes(artifact, name))
    return tensors


def map_tensors(artifact: Artifact, name: str) -> "dict[str, Tensor]":
    """Map one safetensors file of an artifact into memory, which all processes of a machine share.

    The tensors must not be changed. The file may be deleted while they are in use.
    """
    from safetensors.torch import load_file

    if artifact.bucket is None:
        _check(artifact.path, name, read_manifest(artifact.path).files.get(name))
    tensors: dict[str, Tensor] = load_file(path_of(artifact, name))
    return tensors


def read_document(artifact: Artifact, name: str) -> Any:
    """Read the content of one JSON file of an artifact."""
    return parse_json(read_bytes(artifact, name))


def read_bytes(artifact: Artifact, name: str) -> bytes:
    """Read any file of an artifact."""
    if artifact.bucket is not None:
        return bytes_of(artifact, name)
    manifest = read_manifest(artifact.path)
    try:
        data = read_regular(artifact.path / name, limit=MOST_BYTES, through_links=True)
    except OSError as error:
        raise CorruptArtifactError(f"artifact {artifact.path}: {name} can't be read: {error.strerror}") from error
    if (expected := manifest.files.get(name)) is None or not has_digest(data, expected):
        raise _changed(artifact.path, name)
    return data


def names_of(artifact: Artifact) -> tuple[str, ...]:
    """List the names of an artifact's files, without its manifest."""
    return tuple(manifest_here(artifact).files)


def read_libraries(artifact: Artifact) -> dict[str, str]:
    """Read the versions of the libraries that made an artifact."""
    return manifest_here(artifact).libraries


def read_timings(artifact: Artifact) -> dict[str, float]:
    """Read what was measured when an artifact was made: seconds and bytes by name."""
    return manifest_here(artifact).timings


def folder_of(artifact: Artifact) -> Path:
    """Return an artifact's folder on this machine, with all files that the artifact has."""
    if artifact.bucket is not None:
        for name in names_of(artifact):
            path_of(artifact, name)
    return artifact.path


def _check(path: Path, name: str, expected: str | None) -> None:
    """Check one file of an artifact, without holding a large one in memory."""
    try:
        with open_regular(path / name, limit=MOST_BYTES, through_links=True) as file:
            if expected is None or not file_has_digest(file, expected):
                raise _changed(path, name)
        # Another program may have sealed a file that has the right digest and can't be parsed.
        if name.endswith(".json"):
            parse_json(read_regular(path / name, limit=MOST_BYTES, through_links=True))
        elif name.endswith(".safetensors"):
            with safe_open(path / name, framework="np"):
                pass
    except OSError as error:
        raise CorruptArtifactError(f"artifact {path}: {name} can't be read: {error.strerror}") from error
    except (ValueError, SafetensorError) as error:
        raise CorruptArtifactError(f"artifact {path}: {name} can't be parsed: {error}") from error


def _changed(path: Path, name: str) -> CorruptArtifactError:
    return CorruptArtifactError(f"artifact {path}: {name} was changed")


def manifests_in(root: Path) -> dict[Path, Manifest]:
    """Read the manifests of a store's artifacts by folder. A folder without a readable manifest is left out."""
    found = {}
    for kind in folders_in(root):
        for path in folders_in(kind):
            try:
                if os.path.lexists(path / MANIFEST) and not is_of_old_layout(path):
                    found[path] = read_manifest(path)
            except CorruptArtifactError as error:
                # Another process may have deleted the artifact meanwhile, which needs no warning.
                if os.path.lexists(path / MANIFEST):
                    warn(f"{error}; it is passed over")
    return found


def is_of_old_layout(path: Path) -> bool:
    """Say whether the artifact in a folder is one that earlier versions of this project named by their code."""
    try:
        fields = parse_json(read_regular(path / MANIFEST, limit=MOST_MANIFEST_BYTES))
    except (OSError, ValueError):
        return False
    return isinstance(fields, dict) and "code" in fields and "version" not in fields


def reached(manifests: Mapping[Path, Manifest], keys: Sequence[str]) -> set[Path]:
    """Return the folders of some artifacts, of their direct and indirect inputs, and of what was measured of any.

    Args:
        manifests: of all artifacts, by folder.
    """
    by_key = {path.name: path for path in manifests}
    found: set[Path] = set()
    todo = [by_key[key] for key in keys if key in by_key]
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo += [by_key[key] for key in manifests[path].inputs.values() if key in by_key]
    names = {path.name for path in found}
    return found | {path for path, manifest in manifests.items() if manifest.inputs.get(_MEASURED) in names}


def folders_in(folder: Path) -> list[Path]:
    """List the visible folders in a folder, sorted, without links. A missing folder has none."""
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
        warn(f"{folder} can't be read: {error.strerror}; it is passed over")
        return []


@cache
def warn(message: str) -> None:
    """Warn once in each process, with unprintable characters replaced and a long message cut."""
    printable = "".join(character if character.isprintable() else "?" for character in message)
    log.warning("%s", printable[:_MOST_CHARACTERS])
