"""Locks on files that die with the process that holds them, and temporary folders that they guard."""

import logging
import os
import platform
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout, lock_descriptor

from fedfisher_core.engine.errors import InputError, LockedError
from fedfisher_core.engine.files import open_regular, read_regular

log = logging.getLogger("fedfisher")

_POLL_SECONDS = 0.1
_MOST_BYTES = 2**16
_NAMED = 3

_PREFIX = "fedfisher-"
_LOCK = ".lock"


@contextmanager
def held(path: Path, *, purpose: str, timeout: float, shared: bool = False) -> Iterator[Path]:
    """Hold a lock on a file; it ends with the block, or with this process however it dies.

    A process that holds the file alone keeps it locked. One that shares it locks it for a moment, and keeps a file of
    its own next to it locked, `<name>.<digits>`. That file also says which process it is.

    Args:
        path: the file, which is made with its folders where missing and is never removed.
        timeout: seconds to wait for others; 0 tries once.
        shared: others may hold it as well, if they share it too.

    Yields:
        The file next to it.

    Raises:
        LockedError: others hold it still when the time is over.
        InputError: the file can't be locked.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path} can't be locked: {error.strerror}") from error
    note = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    end = time.monotonic() + timeout
    while (hold := _try(path, note, purpose, shared=shared)) is None:
        if time.monotonic() >= end:
            raise LockedError(f"{path} is locked by {_named(path)}; waited {timeout:g} s")
        time.sleep(_POLL_SECONDS)
    with hold:
        yield note


def take(path: Path) -> ExitStack | None:
    """Try once to lock a file.

    Args:
        path: the file, made where missing. The process that holds it may remove it.

    Returns:
        What holds the lock until it is closed; None where others hold it.

    Raises:
        InputError: the file can't be locked.
    """
    try:
        with ExitStack() as hold:
            try:
                hold.enter_context(FileLock(path, timeout=0, thread_local=False, fallback_to_soft=False))
            except PermissionError:
                if not path.exists():
                    raise
                # The file of another user can be locked without writing to it.
                file = hold.enter_context(open_regular(path, limit=_MOST_BYTES))
                if not lock_descriptor(file.fileno(), blocking=False):
                    return None
            return hold.pop_all()
    except Timeout:
        return None
    except OSError as error:
        raise InputError(f"{path} can't be locked: {error.strerror}") from error


def sharing(path: Path) -> set[Path]:
    """Find which processes share a lock, and remove what those have left that are gone.

    Args:
        path: the file, which the caller has locked, so that none begins to share it.

    Returns:
        A file of each.
    """
    found = set()
    for note in _notes(path):
        try:
            gone = take(note)
        except InputError as error:
            # Another user's, who may be there.
            log.debug("%s", error)
            gone = None
        if gone is None:
            found.add(note)
        else:
            with gone, suppress(OSError):
                note.unlink()
    return found


def _try(path: Path, note: Path, purpose: str, *, shared: bool) -> ExitStack | None:
    """Try once to hold a lock."""
    lock = take(path)
    if lock is None:
        return None
    with lock:
        if sharing(path) and not shared:
            return None
        with ExitStack() if shared else lock.pop_all() as hold:
            try:
                said = take(note)
                # No other process knows of it.
                assert said is not None
                hold.enter_context(said)
                hold.callback(note.unlink, missing_ok=True)
                since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
                note.write_text(f"process {os.getpid()} on {platform.node()} ({purpose}, since {since})")
            except (OSError, InputError) as error:
                if shared:
                    raise InputError(f"{path} can't be shared: {error}") from error
                # A lock holds without its note, as where the disk is full.
                log.debug("%s can't be written: %s", note, error)
            return hold.pop_all()


def _named(path: Path) -> str:
    """Name those who hold a lock, a process once for each purpose, with the earliest of its times."""
    said = set()
    for note in _notes(path):
        try:
            said.add(read_regular(note, limit=_MOST_BYTES).decode(errors="replace"))
        except OSError as error:
            log.debug("%s can't be read: %s", note, error)
    texts = sorted(("".join(filter(str.isprintable, one)) for one in said if one), reverse=True)
    names = list({one.rpartition(", since ")[0]: one for one in texts}.values())
    others = f" and {len(names) - _NAMED} others" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED]) or 'a process that has not said who it is'}{others}"


def _notes(path: Path) -> list[Path]:
    """List the files of processes that hold a lock or have held it."""
    named = re.compile(re.escape(path.name) + r"\.[0-9a-f]{32}")
    found = [one for one in path.parent.iterdir() if named.fullmatch(one.name)]
    return [one for one in found if one.is_file() and not one.is_symlink()]


@contextmanager
def scratch() -> Iterator[Path]:
    """Make a folder that only this user can read, and remove it when the block ends.

    Leftovers of killed processes are removed first. Next to each folder is a file that its process keeps locked.
    """
    root = Path(tempfile.gettempdir())
    _remove_left(root)
    folder = root / f"{_PREFIX}{uuid.uuid4().hex}"
    lock = Path(f"{folder}{_LOCK}")
    # Another process that removes leftovers may hold the new file for a moment.
    while (file := take(lock)) is None:
        pass
    with closing(file):
        try:
            folder.mkdir(mode=0o700)
            yield folder
        finally:
            shutil.rmtree(folder)
            lock.unlink()


def _remove_left(root: Path) -> None:
    for lock in root.glob(f"{_PREFIX}*{_LOCK}"):
        file = take(lock) if _is_own(lock) else None
        if file is not None:
            with closing(file):
                shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                lock.unlink()


def _is_own(lock: Path) -> bool:
    try:
        return lock.lstat().st_uid == os.getuid()
    except FileNotFoundError:
        # Another process has just removed it.
        return False
