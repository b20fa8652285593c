"""Writing files in one step, and reading files that anyone may have put there: bounded, regular, strict JSON."""

import errno
import json
import math
import os
import stat
import uuid
from collections.abc import Iterable
from io import FileIO
from pathlib import Path
from typing import Any


def open_regular(path: Path, *, limit: int, through_links: bool = False) -> FileIO:
    """Open a file for reading if it is regular: no link, device, pipe, socket or folder. It never waits.

    Args:
        limit: the most bytes that it may have.
        through_links: whether a link may lead to it, as from DVC's folders to its cache. The target of a link may
            change at any time, so the content must be checked against a digest.

    Raises:
        OSError: it can't be opened, is no regular file or is too large; `strerror` says which.
    """
    try:
        follow = 0 if through_links else os.O_NOFOLLOW
        file = FileIO(os.open(path, os.O_RDONLY | follow | os.O_NONBLOCK | os.O_CLOEXEC))
    except IsADirectoryError:
        raise OSError(errno.EISDIR, "it is a folder", str(path)) from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            said = "its symbolic links go round in circles" if through_links else "it is a symbolic link"
            raise OSError(errno.ELOOP, said, str(path)) from None
        raise
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode) and status.st_size <= limit:
        return file
    file.close()
    if stat.S_ISREG(status.st_mode):
        raise OSError(errno.EFBIG, f"it has {status.st_size} bytes; allowed: {limit}", str(path))
    raise OSError(errno.EINVAL, "it is no regular file", str(path))


def read_regular(path: Path, *, limit: int, through_links: bool = False) -> bytes:
    """Read a file if it is regular; arguments and errors are those of `open_regular`."""
    with open_regular(path, limit=limit, through_links=through_links) as file:
        return file.readall()


def replace_file(path: Path, data: bytes, *, unfinished: Path | None = None) -> None:
    """Write a file so that a reader sees the old or the new content, never a part; its folder is made if missing.

    Args:
        unfinished: a folder of the same disk for what is half written; None for the file's own.
    """
    # Others must be able to read it, which a file of `tempfile` forbids.
    temporary = (unfinished or path.parent) / f".{path.name}.{uuid.uuid4().hex}"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def parse_json(data: bytes, *, largest: float = math.inf) -> Any:
    """Parse JSON that every parser reads alike.

    Args:
        largest: absolute value of a number; integers have no bound by default.

    Raises:
        ValueError: it is no JSON, names a key twice, has a number that is not finite or too large, or nests too deeply.
    """

    def bounded_integer(text: str) -> int:
        number = int(text)
        if abs(number) > largest:
            raise ValueError(f"{text[:20]}... of {len(text)} digits is too large; allowed: up to {largest:g}")
        return number

    def bounded_float(text: str) -> float:
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(f"{text[:20]} is no finite number")
        if abs(number) > largest:
            raise ValueError(f"{text[:20]} is too large; allowed: up to {largest:g}")
        return number

    try:
        return json.loads(
            data,
            parse_constant=bounded_float,
            parse_int=bounded_integer,
            parse_float=bounded_float,
            object_pairs_hook=_each_once,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _each_once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:40]!r} is there twice")
        found[key] = value
    return found
