"""Temporary folders, which the next process removes where one was killed."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from fedfisher_core.engine.locks import take

_PREFIX = "fedfisher-"
_LOCK = ".lock"


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
