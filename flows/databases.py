"""Whether folders and SQLite files can be written, and are what they seem."""

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from fedfisher_core.engine.errors import InputError

# Others may be in the middle of setting the database up.
_BUSY_SECONDS = 5
# A large database is not read to its end before every run.
_CHECK_SECONDS = 1
_INSTRUCTIONS_BETWEEN_LOOKS = 10_000


def require_writable(folder: Path, name: str) -> None:
    """Check that a folder can be written; it is made if missing.

    Args:
        folder: the folder.
        name: what the message calls it.

    Raises:
        InputError: it can't be.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{name} can't be written: {error.strerror}") from error


def require_database(path: Path, name: str) -> None:
    """Check that a SQLite file can be written now, and as much of its content as a moment allows.

    Args:
        path: the file; made if missing.
        name: what the message calls it.

    Raises:
        InputError: it is locked, damaged or can't be written.
    """
    try:
        with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS)) as database:
            database.execute("BEGIN IMMEDIATE")
            database.rollback()
            end = time.monotonic() + _CHECK_SECONDS
            database.set_progress_handler(lambda: time.monotonic() > end, _INSTRUCTIONS_BETWEEN_LOOKS)
            found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT:
            raise InputError(f"{name} can't be opened: {error}") from error
    else:
        if found != "ok":
            raise InputError(f"{name} is damaged; move it away or restore a copy: {found.splitlines()[-1]}")
