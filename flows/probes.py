"""Whether the places that a run writes to are there, asked before any work starts."""

import http.client
import os
import tempfile
import urllib.request
from pathlib import Path

from fedfisher_core.errors import InputError
from fedfisher_core.settings import ExperimentSettings, TrackingSettings
from fedfisher_core.store import open_store
from flows.cluster import require_cluster
from flows.databases import require_database, require_writable
from tasks.tracking import require_layout

_PATIENCE_SECONDS = 5


def require_places(settings: ExperimentSettings) -> None:
    """Check that what a run writes to is there.

    Args:
        settings: the experiment.

    Raises:
        InputError: names the setting, its value and what is wrong.
    """
    open_store(settings.run.store, settings.run.cache).prepare()
    require_writable(settings.run.reports, f"run.reports={str(settings.run.reports)!r}")
    _require_replaceable(settings.run.reports / settings.name)
    _require_temporary_folder()
    require_mlflow(settings.tracking)
    prefect_api = settings.tracking.prefect_api or os.environ.get("PREFECT_API_URL")
    _require_prefect(prefect_api)
    require_cluster(settings.run, prefect_api)


def require_mlflow(tracking: TrackingSettings) -> None:
    """Check that runs can be recorded.

    Args:
        tracking: where MLflow keeps runs.

    Raises:
        InputError: names the setting, its value and what is wrong.
    """
    path, name = tracking.database, f"tracking.mlflow={tracking.mlflow!r}"
    if path is None:
        _require_server(f"{tracking.mlflow.rstrip('/')}/health", name)
        return
    require_database(path, name)
    require_layout(tracking)
    artifacts = tracking.mlflow_artifacts
    require_writable(artifacts, f"tracking.mlflow_artifacts={str(artifacts)!r}")


def _require_replaceable(folder: Path) -> None:
    """Check the folder of a report that may be there from before; what is refused later should make none."""
    if folder.exists() or folder.is_symlink():
        require_writable(folder, f"the report's folder {str(folder)!r} (run.reports and name)")


def _require_temporary_folder() -> None:
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        raise InputError(f"no temporary folder can be written (TMPDIR): {error.strerror}") from error


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
