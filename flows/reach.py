"""Whether folders and SQLite files can be written, and whether servers answer."""

import os
import sqlite3
import ssl
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedfisher_core.engine.errors import InputError

if TYPE_CHECKING:
    from httpx import Response
    from pydantic import SecretStr

# Others may be in the middle of setting the database up.
_BUSY_SECONDS = 5
_CONNECT_SECONDS = 5
# A large database is not read to its end before every run.
_CHECK_SECONDS = 1
_INSTRUCTIONS_BETWEEN_LOOKS = 10_000


def require_writable(folder: Path, name: str) -> None:
    """Check that a folder can be written; it is made if missing.

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


def require_sqlite(address: "SecretStr | None") -> None:
    """Check a database that is a file; Prefect itself would wait for it without a word."""
    from sqlalchemy import make_url

    url = make_url(address.get_secret_value()) if address else None
    if url is not None and url.get_backend_name() == "sqlite" and url.database not in (None, ":memory:"):
        path = Path(str(url.database))
        name = f"Prefect's database {str(path)!r} (in PREFECT_HOME)"
        require_writable(path.parent, name)
        require_database(path, name)


@contextmanager
def response_of(address: str, *, authorization: str | None = None, seconds: float) -> "Iterator[Response]":
    """Ask for a page, and yield the answer, whose content is still to be read.

    Args:
        authorization: for the header Authorization.
        seconds: to wait for each part of the answer.

    Raises:
        OSError: there is no answer; the message gives the reason.
    """
    # A run that only writes files does not need it so early.
    import httpx

    # A busy server is slow to answer. Its system takes connections at once, and an address without one does not.
    patience = httpx.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS))
    try:
        with (
            httpx.Client(verify=ssl.create_default_context(), timeout=patience, follow_redirects=True) as client,
            client.stream("GET", address, headers={"Authorization": authorization} if authorization else {}) as answer,
        ):
            yield answer
    except (httpx.HTTPError, httpx.InvalidURL, ImportError, ValueError) as error:
        raise OSError(str(error) or type(error).__name__) from error


def why_unreachable(address: str, *, seconds: float) -> str:
    """Return the reason why a page can't be read; empty where it can."""
    try:
        with response_of(address, seconds=seconds) as answer:
            return answer.reason_phrase or str(answer.status_code) if answer.is_error else ""
    except OSError as error:
        return str(error)
