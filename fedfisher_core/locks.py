"""Locks on files that die with whoever holds them, and messages that name the holder."""

import fcntl
import logging
import os
import platform
import stat
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from io import FileIO
from pathlib import Path
from weakref import WeakSet

from fedfisher_core.errors import InputError

log = logging.getLogger("fedfisher")

_POLL_SECONDS = 0.1
_NOTE_BYTES = 500
# A forked child shares its parent's locks, and would keep them when the parent is gone.
_taken: WeakSet[FileIO] = WeakSet()


class LockedError(InputError):
    """A file that others keep locked; the message names them."""


@contextmanager
def held(path: Path, *, purpose: str, timeout: float, shared: bool = False) -> Iterator[None]:
    """Hold a lock on a file; it ends with the block, or with this process however it dies.

    Args:
        path: the file, which is made with its folders where missing and is never removed. Files beside it,
            `<name>.<digits>`, say who holds it.
        purpose: what it is held for, for the message that others get.
        timeout: seconds to wait for others; 0 tries once.
        shared: others may hold it as well, if they share it too.

    Raises:
        LockedError: others hold it still when the time is over.
        InputError: the file can't be locked.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path} can't be locked: {error.strerror}") from error
    with _wait(path, timeout, shared), _noted(path, purpose):
        yield


def take(path: Path, *, shared: bool = False) -> FileIO | None:
    """Try once to lock a file.

    Args:
        path: the file, made where missing. Whoever holds it alone may remove it.
        shared: others may hold it as well, if they share it too.

    Returns:
        What holds the lock until it is closed; None where others hold it.

    Raises:
        InputError: the file can't be locked.
    """
    try:
        while True:
            file = _open(path, os.O_CREAT)
            if not _lock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
                return None
            # Whoever held it before may have removed the file meanwhile: then others would lock another one.
            if _is_at(file, path):
                return file
            file.close()
    except OSError as error:
        raise InputError(f"{path} can't be locked: {error.strerror}") from error


def _wait(path: Path, timeout: float, shared: bool) -> FileIO:
    end = time.monotonic() + timeout
    while (file := take(path, shared=shared)) is None:
        if time.monotonic() >= end:
            holders = " and ".join(_holders(path)) or "a process that has not said who it is"
            raise LockedError(f"{path} is locked by {holders}; waited {timeout:g} s")
        time.sleep(_POLL_SECONDS)
    return file


def _open(path: Path, creation: int = 0) -> FileIO:
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file = FileIO(os.open(path, os.O_RDWR | creation | flags, 0o666), "r+")
    except PermissionError:
        # The file of another user can be locked without writing to it.
        file = FileIO(os.open(path, os.O_RDONLY | flags), "r")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise InputError(f"{path} can't be locked: it is no regular file")
    return file


def _lock(file: FileIO, operation: int) -> bool:
    """Lock an open file, or close it where others hold it."""
    try:
        fcntl.flock(file, operation | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        if isinstance(error, BlockingIOError):
            return False
        raise
    _taken.add(file)
    return True


def _is_at(file: FileIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
    except FileNotFoundError:
        return False


@contextmanager
def _noted(path: Path, purpose: str) -> Iterator[None]:
    """Say who holds a lock, in a file that is locked as long as it is true."""
    since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    text = f"process {os.getpid()} on {platform.node()} ({purpose}, since {since})"
    note = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    _holders(path)
    file = None
    try:
        file = take(note)
        if file is not None:
            file.write(text.encode(errors="replace")[:_NOTE_BYTES])
    except (OSError, InputError) as error:
        # A lock holds without its note, as where the disk is full.
        log.debug("%s can't be written: %s", note, error)
    try:
        yield
    finally:
        note.unlink(missing_ok=True)
        if file is not None:
            file.close()


def _holders(path: Path) -> list[str]:
    """List who holds a lock, and remove the notes of those that are gone."""
    found = []
    for note in sorted(path.parent.iterdir()):
        if not (note.name.startswith(f"{path.name}.") and len(note.name) == len(path.name) + 33):
            continue
        try:
            file = _open(note)
            said = "".join(filter(str.isprintable, file.read(_NOTE_BYTES).decode(errors="replace")))
            # An empty one is being written.
            if not _lock(file, fcntl.LOCK_EX):
                found.append(said)
            elif said:
                note.unlink(missing_ok=True)
            file.close()
        except (OSError, InputError) as error:
            log.debug("%s can't be read: %s", note, error)
    return found


def _drop_in_child() -> None:
    for file in list(_taken):
        file.close()


os.register_at_fork(after_in_child=_drop_in_child)
