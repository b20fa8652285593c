"""Folders in which artifacts are written, each its writer's own until it is done or dead."""

import logging
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedfisher_core.errors import InputError
from fedfisher_core.locks import take

log = logging.getLogger("fedfisher")

_LOCK = ".lock"


@contextmanager
def new_folder(parent: Path) -> Iterator[Path]:
    """Make a folder that `sweep` leaves alone until the block ends, and that is removed then unless it was moved away.

    Args:
        parent: where; the folder's lock lies beside it.

    Yields:
        The folder.
    """
    path = parent / uuid.uuid4().hex
    lock_path = parent / f"{path.name}{_LOCK}"
    # A sweep that finds the file before it is locked holds it for a moment, and removes it.
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
    """Remove folders of writers that are gone. Whether a writer is gone is told by its lock, in any container.

    Args:
        parent: where `new_folder` made them.
    """
    for lock_path in parent.glob(f"*{_LOCK}"):
        try:
            lock = take(lock_path)
            if lock is not None:
                with lock:
                    remove_entry(lock_path.with_suffix(""))
                    remove_entry(lock_path)
        except InputError as error:
            # Those of other users stay until they come back.
            log.info("%s", error)


def require_folder(path: Path) -> None:
    """Make a folder, in the place of whatever else is there.

    Args:
        path: the folder.

    Raises:
        InputError: what is there can't be removed.
        OSError: the folder can't be made.
    """
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        log.warning("%s is no folder; it is made anew", path)
        remove_entry(path)
    path.mkdir(exist_ok=True)


def remove_entry(path: Path) -> None:
    """Remove whatever is at a path; what a link points to stays.

    Args:
        path: a folder, a file or anything else, or nothing.

    Raises:
        InputError: it can't be removed.
    """
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
