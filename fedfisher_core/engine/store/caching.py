"""Files of artifacts in a bucket, as far as this machine has read or written them.

The folder has the layout of a store. A file of an artifact is the object `<kind>/<key>/<name>.<digest>`: two machines
that make the same artifact never write over each other, and the manifest, which one of them writes, says which
objects count.
"""

import logging
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import TypeGuard

from fedfisher_core.engine.errors import CorruptArtifactError, UnwritableError
from fedfisher_core.engine.files import open_regular, read_regular, replace_file
from fedfisher_core.engine.store.bucket import Bucket
from fedfisher_core.engine.store.manifest import (
    MANIFEST,
    MOST_BYTES,
    MOST_MANIFEST_BYTES,
    Artifact,
    Manifest,
    content_digest,
    file_has_digest,
    has_digest,
    read_manifest,
)

log = logging.getLogger("fedfisher")

_KEY = re.compile("[0-9a-f]+")
_IN_USE_SECONDS = 3600
_PAUSE_SECONDS = 60
_LEFT = 0.8
_bounds: dict[Path, int] = {}
_trimmed: dict[Path, float] = {}


def object_name(kind: str, key: str, name: str, digest: str) -> str:
    """Name the object of an artifact's file in a bucket, by the digest of its content."""
    return f"{kind}/{key}/{name}.{digest}"


def manifest_name(kind: str, key: str) -> str:
    """Name the object that makes an artifact exist in a bucket."""
    return f"{kind}/{key}/{MANIFEST}"


def put(path: Path, content: bytes) -> None:
    """Write a file of the cache in one step, and replace one that is there."""
    try:
        replace_file(path, content)
    except OSError as error:
        raise UnwritableError(f"{path} can't be written (run.cache.folder): {error.strerror}") from error


def manifest_here(artifact: Artifact) -> Manifest:
    """Read the manifest of an artifact, from its bucket where this machine has none.

    Raises:
        CorruptArtifactError: there is none, it is damaged, or it is that of another result of the same recipe.
        BucketError: the bucket does not answer.
    """
    if artifact.bucket is None:
        return read_manifest(artifact.path)
    try:
        return _own(read_manifest(artifact.path), artifact)
    except CorruptArtifactError as error:
        log.debug("%s", error)
    name = manifest_name(artifact.kind, artifact.key)
    content = Bucket(artifact.bucket).read(name, most_bytes=MOST_MANIFEST_BYTES)
    if content is None:
        raise CorruptArtifactError(f"{artifact.bucket}/{name} was removed")
    put(artifact.path / MANIFEST, content)
    return _own(read_manifest(artifact.path), artifact)


def path_of(artifact: Artifact, name: str) -> Path:
    """Return the path of an artifact's file on this machine, and fetch it from the bucket where no intact copy is here.

    Raises:
        CorruptArtifactError: the bucket has no such file, or a damaged one. The artifact no longer exists then, and the
            next run makes it again.
        BucketError: the bucket does not answer.
    """
    path = artifact.path / name
    if artifact.bucket is not None:
        digest = _digest_of(artifact, name)
        # No process trims it while this one reads it.
        _use(path)
        try:
            with open_regular(path, limit=MOST_BYTES) as file:
                intact = file_has_digest(file, digest)
        except OSError:
            intact = False
        if not intact:
            _fetch(artifact, name, digest)
    return path


def bytes_of(artifact: Artifact, name: str) -> bytes:
    """Read a file of an artifact in a bucket, from this machine's copy where it is intact; errors as for `path_of`."""
    path, digest = artifact.path / name, _digest_of(artifact, name)
    try:
        content = read_regular(path, limit=MOST_BYTES)
    except OSError:
        content = b""
    if not has_digest(content, digest):
        content = _fetch(artifact, name, digest)
    _use(path)
    return content


def keep_within(folder: Path, most_bytes: int) -> None:
    """Keep a cache within a number of bytes, now and from now on."""
    _bounds[folder] = most_bytes
    _trim_now_and_then(folder)


def trim(folder: Path, most_bytes: int) -> None:
    """Remove the least recently used files of a cache that exceeds its bound, until it is well within.

    What was used within the last hour stays, and so do manifests, and files that are no artifact's.
    """
    found = []
    for manifest in folder.glob(f"*/*/{MANIFEST}"):
        for path in manifest.parent.iterdir() if _KEY.fullmatch(manifest.parent.name) else ():
            with suppress(FileNotFoundError):
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in found)
    if total <= most_bytes:
        return
    for used, size, path in sorted(found):
        if total <= _LEFT * most_bytes or used > time.time() - _IN_USE_SECONDS:
            return
        if path.name != MANIFEST:
            path.unlink(missing_ok=True)
            total -= size


def _trim_now_and_then(folder: Path) -> None:
    """Trim a cache whose bound is known; a process looks at most once a minute."""
    last, most_bytes = _trimmed.get(folder), _bounds.get(folder)
    if most_bytes is not None and (last is None or time.monotonic() > last + _PAUSE_SECONDS):
        _trimmed[folder] = time.monotonic()
        trim(folder, most_bytes)


def _own(manifest: Manifest, artifact: Artifact) -> Manifest:
    # With some services, two machines that write a manifest at the same moment both succeed.
    if content_digest(manifest.files) != artifact.digest:
        raise CorruptArtifactError(
            f"{artifact.bucket}/{artifact.kind}/{artifact.key} was written by two machines at once, with different "
            "results; the next run takes the one that stayed"
        )
    return manifest


def _digest_of(artifact: Artifact, name: str) -> str:
    digest = manifest_here(artifact).files.get(name)
    if digest is None:
        raise CorruptArtifactError(f"artifact {artifact.path}: it has no file {name!r}")
    return digest


def _use(path: Path) -> None:
    """Note that a copy is used: what was used last is removed last."""
    with suppress(FileNotFoundError):
        os.utime(path)


def _fetch(artifact: Artifact, name: str, digest: str) -> bytes:
    """Read a file from its bucket, and keep a copy."""
    bucket = Bucket(str(artifact.bucket))
    place = object_name(artifact.kind, artifact.key, name, digest)
    content = bucket.read(place, most_bytes=MOST_BYTES)
    if not _has(content, digest):
        content = _read_again(bucket, artifact, place, digest)
    put(artifact.path / name, content)
    _trim_now_and_then(artifact.path.parent.parent)
    return content


def _read_again(bucket: Bucket, artifact: Artifact, place: str, digest: str) -> bytes:
    """Read a damaged file once more, in case another machine has made it again; otherwise delete its manifest.

    A machine that makes an artifact again writes its files before its manifest. So a manifest that was there before the
    file was found to be damaged, and is still there, is the one to delete.
    """
    name = manifest_name(artifact.kind, artifact.key)
    manifest = bucket.read(name, most_bytes=MOST_MANIFEST_BYTES)
    content = bucket.read(place, most_bytes=MOST_BYTES)
    if _has(content, digest):
        return content
    # The manifest of another result of the same recipe names other files.
    if manifest is not None and digest.encode() in manifest:
        bucket.remove_unchanged(name, manifest)
    state = "was removed" if content is None else "was changed"
    raise CorruptArtifactError(f"{bucket.url}/{place} {state}; the next run makes the artifact again")


def _has(content: bytes | None, digest: str) -> TypeGuard[bytes]:
    return content is not None and has_digest(content, digest)
