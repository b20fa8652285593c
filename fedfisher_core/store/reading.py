"""Reading artifacts: nothing is believed that is not what was written."""

import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from fedfisher_core.errors import CorruptArtifactError
from fedfisher_core.files import open_regular, parse_json, read_regular
from fedfisher_core.store.caching import bytes_of, manifest_here, path_of
from fedfisher_core.store.digests import file_has_digest, has_digest
from fedfisher_core.store.manifest import MOST_BYTES, read_manifest
from fedfisher_core.store.shedding import missing_files
from fedfisher_core.store.step import Artifact

if TYPE_CHECKING:
    from torch import Tensor


def look_up(path: Path) -> Artifact | None:
    """Look for an artifact and check all of it, or what is left of one that was shed.

    Args:
        path: its folder, `<store>/<kind>/<key>`.

    Returns:
        The artifact; None if there is nothing.

    Raises:
        CorruptArtifactError: what is there is not intact.
    """
    for folder in (path.parent, path):
        try:
            mode = folder.lstat().st_mode
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CorruptArtifactError(f"artifact {path} can't be read: {error.strerror}") from error
        if not stat.S_ISDIR(mode):
            raise CorruptArtifactError(f"artifact {path} can't be read: {folder} is no folder")
    manifest = read_manifest(path)
    missing = missing_files(path, manifest)
    for name, expected in manifest.files.items():
        if name not in missing:
            _check(path, name, expected)
    return manifest.artifact(path, shed=bool(missing))


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
    if artifact.made is not None:
        return dict(artifact.made.tensors[name])
    # Settings can be checked, and artifacts looked for, without torch.
    from safetensors.torch import load

    return load(read_bytes(artifact, name))


def map_tensors(artifact: Artifact, name: str) -> "dict[str, Tensor]":
    """Map one safetensors file of an artifact into memory, where all processes of a machine share it.

    Args:
        artifact: the artifact.
        name: the file's name.

    Returns:
        Its named tensors, which must not be changed; the file may be removed meanwhile.

    Raises:
        CorruptArtifactError: the file is not what was written.
        BucketError: the bucket that it lies in does not answer.
    """
    from safetensors.torch import load_file

    if artifact.bucket is None:
        _check(artifact.path, name, read_manifest(artifact.path).files.get(name))
    return load_file(path_of(artifact, name))


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
    return parse_json(read_bytes(artifact, name))


def read_bytes(artifact: Artifact, name: str) -> bytes:
    """Read any file of an artifact.

    Args:
        artifact: the artifact.
        name: the file's name.

    Returns:
        Its content.

    Raises:
        CorruptArtifactError: the file is not what was written.
        BucketError: the bucket that it lies in does not answer.
    """
    if artifact.bucket is not None:
        return bytes_of(artifact, name)
    manifest = read_manifest(artifact.path)
    try:
        data = read_regular(artifact.path / name, limit=MOST_BYTES)
    except OSError as error:
        raise CorruptArtifactError(f"artifact {artifact.path}: {name} can't be read: {error.strerror}") from error
    if (expected := manifest.files.get(name)) is None or not has_digest(data, expected):
        raise _changed(artifact.path, name)
    return data


def names_of(artifact: Artifact) -> tuple[str, ...]:
    """List the files of an artifact, but for its manifest.

    Args:
        artifact: the artifact.

    Returns:
        Their names, those that were shed among them.
    """
    return tuple(manifest_here(artifact).files)


def read_timings(artifact: Artifact) -> dict[str, float]:
    """Read what was measured when an artifact was made.

    Args:
        artifact: the artifact.

    Returns:
        Seconds and bytes by name.
    """
    return manifest_here(artifact).timings


def folder_of(artifact: Artifact) -> Path:
    """Find all of an artifact on this machine.

    Args:
        artifact: the artifact.

    Returns:
        Its folder, with all files that the artifact has.

    Raises:
        CorruptArtifactError: the bucket that it lies in has not all of them.
        BucketError: the bucket that it lies in does not answer.
    """
    if artifact.bucket is not None:
        for name in names_of(artifact):
            path_of(artifact, name)
    return artifact.path


def _check(path: Path, name: str, expected: str | None) -> None:
    """Check one file of an artifact, without holding a large one in memory."""
    try:
        with open_regular(path / name, limit=MOST_BYTES) as file:
            if expected is None or not file_has_digest(file, expected):
                raise _changed(path, name)
        # What was sealed by others than this project may still be no such file.
        if name.endswith(".json"):
            parse_json(read_regular(path / name, limit=MOST_BYTES))
        elif name.endswith(".safetensors"):
            with safe_open(path / name, framework="np"):
                pass
    except OSError as error:
        raise CorruptArtifactError(f"artifact {path}: {name} can't be read: {error.strerror}") from error
    except (ValueError, SafetensorError) as error:
        raise CorruptArtifactError(f"artifact {path}: {name} can't be parsed: {error}") from error


def _changed(path: Path, name: str) -> CorruptArtifactError:
    return CorruptArtifactError(f"artifact {path}: {name} was changed")
