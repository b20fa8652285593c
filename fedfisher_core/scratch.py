"""Temporary folders that no process leaves behind for good."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from fedfisher_core.locks import take

_PREFIX = "fedfisher-"
_LOCK = ".lock"


@contextmanager
def scratch() -> Iterator[Path]:
    """Make a folder that is removed in the end; those of processes that were killed are removed first.

    Beside each lies a file that its process keeps locked.

    Yields:
        The folder, which only this user can read.
    """
    root = Path(tempfile.gettempdir())
    _remove_left(root)
    folder = root / f"{_PREFIX}{uuid.uuid4().hex}"
    lock = Path(f"{folder}{_LOCK}")
    # Another process that removes what was left may have the new file for a moment.
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
