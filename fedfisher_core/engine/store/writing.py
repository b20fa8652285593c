"""Folders in which artifacts are written; each belongs to its writer until the writer is done or dead."""

import logging
import os
import secrets
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.locks import take


@dataclass(frozen=True)
class Mark:
    """A file that only a process which sees the store can read back."""

    name: str
    said: str

    @classmethod
    def new(cls) -> Self:
        """Make a mark with a random name and content."""
        return cls(f".seen-{secrets.token_hex(4)}", secrets.token_hex(8))


log = logging.getLogger("fedfisher")

_LOCK = ".lock"


@contextmanager
def new_folder(parent: Path) -> Iterator[Path]:
    """Make a folder in a parent, and remove it when the block ends unless it was moved away; `sweep` leaves it alone.

    Next to the folder is its lock.
    """
    path = parent / uuid.uuid4().hex
    lock_path = parent / f"{path.name}{_LOCK}"
    # A sweep may find the file before it is locked here. It then holds the file for a moment and removes it.
    while (lock := take(lock_path)) is None:
        pass
    with lock:
        try:
            path.mkdir()
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
            lock_path.unlink(missing_ok=True)


def sweep(parent: Path) -> None:
    """Remove folders by `new_folder` whose writers are gone, which a free lock shows, in any container."""
    for lock_path in parent.glob(f"*{_LOCK}"):
        try:
            lock = take(lock_path)
            if lock is not None:
                with lock:
                    remove_entry(lock_path.with_suffix(""))
                    remove_entry(lock_path)
        except InputError as error:
            # Folders of another user stay until that user's next run.
            log.info("%s", error)


def require_folder(path: Path) -> None:
    """Make a folder, and replace a file or link that is there; `OSError` where it can't be made."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        log.warning("%s is no folder; it is made anew", path)
        remove_entry(path)
    path.mkdir(exist_ok=True)


def remove_entry(path: Path) -> None:
    """Remove a folder, a file, a link or nothing. What a link points to stays."""
    try:
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as error:
        if not isinstance(error, FileNotFoundError) or os.path.lexists(path):
            raise InputError(f"{path} can't be removed: {error.strerror}; remove it by hand") from error
    except RecursionError:
        raise InputError(f"{path} can't be removed: it is nested too deeply; remove it by hand") from None
