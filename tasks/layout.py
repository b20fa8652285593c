"""Empty databases in MLflow's newest layout: made by its own command, which takes seconds, and kept for the next."""

import logging
import os
import shutil
import sqlite3
import sys
import uuid
from contextlib import closing
from pathlib import Path
from subprocess import CompletedProcess, run

from platformdirs import user_cache_path

from tasks.lifeline import end_with_input

log = logging.getLogger("fedfisher")


def copy_kept(path: Path, version: str) -> bool:
    """Copy an empty database that an earlier command of this user made.

    Args:
        path: where it goes.
        version: of the layout.

    Returns:
        Whether there was one, in this layout and whole; nothing is left where there was none.
    """
    try:
        shutil.copyfile(_kept(version), path)
        with closing(sqlite3.connect(path)) as database:
            whole = database.execute("PRAGMA quick_check").fetchall() == [("ok",)]
            if whole and database.execute("SELECT version_num FROM alembic_version").fetchall() == [(version,)]:
                return True
    except (OSError, sqlite3.Error) as error:
        log.debug("no layout of MLflow's database is kept: %s", error)
    path.unlink(missing_ok=True)
    return False


def keep(path: Path, version: str) -> None:
    """Keep an empty database for later commands of this user, where the cache can be written.

    Args:
        path: the file.
        version: of its layout.
    """
    kept = _kept(version)
    written = kept.with_name(f"{kept.name}.{uuid.uuid4().hex}")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(path, written)
            written.replace(kept)
        finally:
            written.unlink(missing_ok=True)
    except OSError as error:
        log.debug("the layout of MLflow's database is not kept: %s", error)


def _kept(version: str) -> Path:
    return user_cache_path("fedfisher") / f"mlflow-{version}.db"


def upgrade(path: Path) -> CompletedProcess[str]:
    """Have MLflow bring a SQLite file to its newest layout, in a process that ends with whoever started it.

    Args:
        path: the file; made where missing.

    Returns:
        How the command ended, and what it said.
    """
    read, write = os.pipe()
    try:
        command = [sys.executable, "-m", __name__, "upgrade", f"sqlite:///{path}"]
        return run(command, stdin=read, capture_output=True, text=True, check=False)
    finally:
        os.close(read)
        os.close(write)


if __name__ == "__main__":
    end_with_input()
    # Nothing waits for it before the first results are there.
    os.nice(5)
    # The group of `mlflow db` alone: all of MLflow's commands take twice as long to load.
    from mlflow.db import commands

    commands()
