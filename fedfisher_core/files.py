"""Reading what anyone may have put in a file's place: only regular files of bounded size, and only strict JSON."""

import errno
import json
import math
import os
import stat
from collections.abc import Iterable
from io import FileIO
from pathlib import Path
from typing import Any


def open_regular(path: Path, *, limit: int) -> FileIO:
    """Open a file for reading if it is a regular one: no link, device, pipe, socket or folder. It never waits.

    Args:
        path: the file.
        limit: the most bytes that it may have.

    Returns:
        The open file.

    Raises:
        OSError: it can't be opened, is no regular file or is too large; `strerror` says which.
    """
    try:
        file = FileIO(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))
    except IsADirectoryError:
        raise OSError(errno.EISDIR, "it is a folder", str(path)) from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a symbolic link", str(path)) from None
        raise
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode) and status.st_size <= limit:
        return file
    file.close()
    if stat.S_ISREG(status.st_mode):
        raise OSError(errno.EFBIG, f"it has {status.st_size} bytes; allowed: {limit}", str(path))
    raise OSError(errno.EINVAL, "it is no regular file", str(path))


def read_regular(path: Path, *, limit: int) -> bytes:
    """Read a file if it is a regular one.

    Args:
        path: the file.
        limit: the most bytes that it may have.

    Returns:
        Its content.

    Raises:
        OSError: as for `open_regular`.
    """
    with open_regular(path, limit=limit) as file:
        return file.readall()


def parse_json(data: bytes) -> Any:
    """Parse JSON that means the same to everyone.

    Args:
        data: the text.

    Returns:
        Its content.

    Raises:
        ValueError: it is no JSON, names a key twice, has a number that is not finite, or is nested too deeply.
    """
    try:
        return json.loads(data, parse_constant=_finite, parse_float=_finite, object_pairs_hook=_each_once)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is no finite number")
    return number


def _each_once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:40]!r} is there twice")
        found[key] = value
    return found
