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
_NAMED = 3
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
    with wait(path, timeout, shared=shared), _noted(path, purpose):
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


def wait(path: Path, timeout: float, *, shared: bool = False) -> FileIO:
    """Lock a file, once others no longer hold it.

    Args:
        path: the file, made where missing.
        timeout: seconds to wait for others; 0 tries once.
        shared: others may hold it as well, if they share it too.

    Returns:
        What holds the lock until it is closed.

    Raises:
        LockedError: others hold it still when the time is over.
        InputError: the file can't be locked.
    """
    end = time.monotonic() + timeout
    while (file := take(path, shared=shared)) is None:
        if time.monotonic() >= end:
            holders = _holders(path) or ["a process that has not said who it is"]
            others = f" and {len(holders) - _NAMED} others" if len(holders) > _NAMED else ""
            raise LockedError(f"{path} is locked by {', '.join(holders[:_NAMED])}{others}; waited {timeout:g} s")
        time.sleep(_POLL_SECONDS)
    return file


def try_alone(file: FileIO) -> bool:
    """Turn a shared lock into one that nobody shares, where no one else has a share now.

    The system gives the share up for a moment. Those who call this must exclude each other by another lock.

    Args:
        file: holds the share.

    Returns:
        Whether nobody shares it now; if not, it is the share that it was.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        share(file)
        return False
    return True


def share(file: FileIO) -> None:
    """Let others share a lock again.

    Args:
        file: holds the lock.
    """
    fcntl.flock(file, fcntl.LOCK_SH)


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
    file = None
    try:
        _holders(path)
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
    """List who holds a lock, a process once for each purpose, and remove the notes of those that are gone."""
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
    # Of notes that differ in their time alone, the earliest.
    return list({said.rpartition(", since ")[0]: said for said in sorted(found, reverse=True)}.values())


def _drop_in_child() -> None:
    for file in list(_taken):
        file.close()


os.register_at_fork(after_in_child=_drop_in_child)
