"""Digests of the files of artifacts: BLAKE3, and SHA-256 in manifests that earlier versions have written."""

import hashlib
from collections.abc import Callable
from io import FileIO
from typing import Any

from blake3 import blake3

PATTERN = "^(blake3-)?[0-9a-f]{64}$"
_PREFIX = "blake3-"


def digest_of(content: bytes) -> str:
    """Digest a new file.

    Args:
        content: of the file.

    Returns:
        The digest, of the form that `PATTERN` says.
    """
    return f"{_PREFIX}{blake3(content).hexdigest()}"


def has_digest(content: bytes, digest: str) -> bool:
    """Say whether a file is what was written.

    Args:
        content: of the file.
        digest: of what was written, by either algorithm.
    """
    return bool(_algorithm(digest)(content).hexdigest() == digest.removeprefix(_PREFIX))


def file_has_digest(file: FileIO, digest: str) -> bool:
    """Say whether an open file is what was written, without holding a large one in memory.

    Args:
        file: the file, at its start.
        digest: of what was written, by either algorithm.
    """
    return hashlib.file_digest(file, _algorithm(digest)).hexdigest() == digest.removeprefix(_PREFIX)


def _algorithm(digest: str) -> Callable[..., Any]:
    return blake3 if digest.startswith(_PREFIX) else hashlib.sha256
