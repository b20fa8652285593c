"""Artifacts that were shed: their documents are there, their large files are not, and a marker says so."""

import os
from pathlib import Path

from fedfisher_core.errors import CorruptArtifactError
from fedfisher_core.files import read_regular
from fedfisher_core.store.manifest import MARKER, Manifest, read_manifest
from fedfisher_core.store.step import as_json


def large_files(manifest: Manifest) -> tuple[str, ...]:
    """List the files that an artifact can do without: all but its JSON documents."""
    return tuple(sorted(name for name in manifest.files if not is_document(name)))


def is_document(name: str) -> bool:
    """Say whether a file stays when its artifact is shed."""
    return name.endswith(".json")


def missing_files(path: Path, manifest: Manifest) -> tuple[str, ...]:
    """List the files that an artifact was shed of; some may still be there, where whoever shed it was killed.

    Args:
        path: the artifact's folder.
        manifest: the artifact's.

    Returns:
        Names; none where there is no marker.

    Raises:
        CorruptArtifactError: the marker is not what was written for this artifact.
    """
    # What a marker must be follows from the manifest, so that nothing in it has to be believed.
    expected = _marker(path, manifest)
    try:
        found = read_regular(path / MARKER, limit=len(expected))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise CorruptArtifactError(f"artifact {path}: {MARKER} can't be read: {error.strerror}") from error
    names = large_files(manifest)
    if found != expected or not names:
        raise CorruptArtifactError(f"artifact {path}: {MARKER} was changed")
    return names


def shed(path: Path, manifest: Manifest, temporary: Path) -> int:
    """Remove the large files of an artifact; it can be looked up at any moment, and counts as shed from the first on.

    Args:
        path: the artifact's folder.
        manifest: the artifact's.
        temporary: a folder of the caller's own on the same disk.

    Returns:
        Bytes that are free now; files that have another name elsewhere count for none.
    """
    names = large_files(manifest)
    if not names:
        return 0
    # The marker comes before files go, and at once: a kill leaves what is whole or what is shed.
    (temporary / MARKER).write_bytes(_marker(path, manifest))
    (temporary / MARKER).replace(path / MARKER)
    freed = 0
    for name in names:
        try:
            status = (path / name).lstat()
            (path / name).unlink()
        except FileNotFoundError:
            continue
        freed += status.st_size if status.st_nlink == 1 else 0
    return freed


def put_back(path: Path, manifest: Manifest, temporary: Path) -> None:
    """Put the large files of a shed artifact back; what was measured when it was first made stays.

    Args:
        path: the artifact's folder.
        manifest: the artifact's.
        temporary: a folder on the same disk that holds the files.
    """
    for name in large_files(manifest):
        (temporary / name).replace(path / name)
    (path / MARKER).unlink(missing_ok=True)


def has_large_files(path: Path) -> bool:
    """Say whether an artifact has any file that would go if it were shed; not where it can't be read.

    Args:
        path: the artifact's folder.
    """
    try:
        # Of those that were shed there are many, and few have files that are no documents.
        there = [name for name in os.listdir(path) if not is_document(name)]
        return bool(there) and not set(large_files(read_manifest(path))).isdisjoint(there)
    except (OSError, CorruptArtifactError):
        return False


def _marker(path: Path, manifest: Manifest) -> bytes:
    return as_json({"artifact": manifest.artifact(path).digest, "removed": large_files(manifest)}) + b"\n"
