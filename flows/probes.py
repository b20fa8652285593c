"""Whether the places that a run writes to are there, asked before any work starts."""

import http.client
import os
import sqlite3
import urllib.request
from contextlib import closing
from pathlib import Path

from fedfisher_core.errors import InputError
from fedfisher_core.settings import ExperimentSettings
from fedfisher_core.store import open_store

_PATIENCE_SECONDS = 5


def require_places(settings: ExperimentSettings) -> None:
    """Check that what a run writes to is there.

    Args:
        settings: the experiment.

    Raises:
        InputError: names the setting, its value and what is wrong.
    """
    open_store(settings.run.store).prepare()
    _require_writable(settings.run.reports, "run.reports")
    _require_mlflow(settings.tracking.mlflow)
    _require_prefect(settings.tracking.prefect_api or os.environ.get("PREFECT_API_URL"))


def _require_writable(folder: Path, setting: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{setting}={str(folder)!r} can't be written: {error.strerror}") from error


def _require_mlflow(uri: str) -> None:
    if uri.startswith("http"):
        _require_server(f"{uri.rstrip('/')}/health", f"tracking.mlflow={uri!r}")
        return
    # As SQLAlchemy reads it: a query may follow, and nothing is percent-encoded.
    path = Path(uri.removeprefix("sqlite:///").partition("?")[0])
    try:
        with closing(sqlite3.connect(path)) as database:
            database.execute("BEGIN IMMEDIATE")
            database.rollback()
    except sqlite3.Error as error:
        raise InputError(f"tracking.mlflow={uri!r} can't be opened: {error}") from error


def _require_prefect(api: str | None) -> None:
    if api is not None:
        _require_server(
            f"{api.rstrip('/')}/health", f"Prefect server {api!r} (tracking.prefect_api or PREFECT_API_URL)"
        )


def _require_server(address: str, name: str) -> None:
    try:
        with urllib.request.urlopen(address, timeout=_PATIENCE_SECONDS):
            pass
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise InputError(f"{name} can't be reached: {getattr(error, 'reason', error)}") from error
