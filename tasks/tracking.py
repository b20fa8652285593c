"""The SQLite file that MLflow keeps runs in: laid out before it is used, and written by one process at a time."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from importlib.metadata import distribution
from pathlib import Path

from fedfisher_core.errors import InputError
from fedfisher_core.scratch import scratch
from fedfisher_core.settings import TrackingSettings
from tasks.layout import copy_kept, keep, upgrade
from tasks.waiting import patiently_held

_PATIENCE_SECONDS = 1800
# What MLflow's own migrations write into an empty database, and its first use.
_WRITTEN_BY_LAYOUT = {"alembic_version", "workspaces"}
# How a migration says its own name, and the name of the one before it.
_REVISIONS = ("revision", "down_revision")


def prepare_tracking(settings: TrackingSettings) -> None:
    """Lay out a local database for MLflow, unless it is; may be called beside other work, since it takes seconds.

    A database that was left half made, and holds nothing, is made anew; MLflow itself could not go on with it.

    Args:
        settings: where MLflow keeps runs.

    Raises:
        InputError: the database can't be laid out, or holds runs in the layout of another version of MLflow.
    """
    path = settings.database
    if path is None or _is_laid_out(path, settings):
        return
    with _alone(path, purpose="lays out the MLflow database"):
        if not _is_laid_out(path, settings):
            _lay_out(path, settings)


def require_layout(settings: TrackingSettings) -> None:
    """Check that a local database, where there is one, can be used or made anew.

    Args:
        settings: where MLflow keeps runs.

    Raises:
        InputError: it is damaged, or holds runs in the layout of another version of MLflow.
    """
    if settings.database is not None and settings.database.exists():
        _is_laid_out(settings.database, settings)


def recording(settings: TrackingSettings) -> AbstractContextManager[None]:
    """Let one process at a time write runs into a local database, so that none is written twice.

    Args:
        settings: where MLflow keeps runs; a server orders its writers itself.

    Raises:
        LockedError: another process writes for too long; the message names it.
    """
    path = settings.database
    return nullcontext() if path is None else _alone(path, purpose="records runs in MLflow")


@contextmanager
def _alone(path: Path, *, purpose: str) -> Iterator[None]:
    with patiently_held(path.with_name(f"{path.name}.lock"), purpose=purpose, timeout=_PATIENCE_SECONDS):
        yield


def _is_laid_out(path: Path, settings: TrackingSettings) -> bool:
    """Say whether MLflow can use a database as it is; False where it may be made anew."""
    with _opened(path, settings) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "alembic_version" in tables:
            found = {version for (version,) in database.execute("SELECT version_num FROM alembic_version")}
            if found == {_newest_layout()}:
                return True
        holds_any = any(_holds_rows(database, table) for table in tables - _WRITTEN_BY_LAYOUT)
    if holds_any:
        raise InputError(
            f"tracking.mlflow={settings.mlflow!r} is laid out for another version of MLflow; keep a copy of the file, "
            f"then `mlflow db upgrade {settings.mlflow}` may bring it up to date"
        )
    return False


def _holds_rows(database: sqlite3.Connection, table: str) -> bool:
    # The first experiment is MLflow's own.
    rows = f'"{table}" WHERE experiment_id != 0' if table == "experiments" else f'"{table}"'
    return database.execute(f"SELECT EXISTS (SELECT 1 FROM {rows})").fetchone() == (1,)


def _lay_out(path: Path, settings: TrackingSettings) -> None:
    """Have MLflow make a database elsewhere and put it into the file in one transaction."""
    with scratch() as folder:
        made, version = folder / "mlflow.db", _newest_layout()
        if not copy_kept(made, version):
            done = upgrade(made)
            if done.returncode != 0:
                last = (done.stderr.strip() or "nothing was said").splitlines()[-1]
                raise InputError(f"tracking.mlflow={settings.mlflow!r} can't be laid out by MLflow: {last}")
            keep(made, version)
        with closing(sqlite3.connect(made)) as source, _opened(path, settings) as target:
            # The copy itself would wait for another writer without end.
            target.execute("BEGIN EXCLUSIVE")
            target.rollback()
            source.backup(target)


@contextmanager
def _opened(path: Path, settings: TrackingSettings) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(path)) as database:
            yield database
    except sqlite3.Error as error:
        raise InputError(f"tracking.mlflow={settings.mlflow!r} can't be used: {error}") from error


def _newest_layout() -> str:
    """Read the last of the installed MLflow's migrations without the seconds that importing MLflow takes."""
    folder = Path(str(distribution("mlflow").locate_file("mlflow/store/db_migrations/versions")))
    text = "".join(path.read_text() for path in folder.glob("*.py"))
    made, followed = (set(re.findall(rf'^{name} = "(\w+)"', text, re.MULTILINE)) for name in _REVISIONS)
    (newest,) = made - followed
    return newest
