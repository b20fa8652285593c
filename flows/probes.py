"""Whether the places that a run writes to are there, asked before any work starts."""

import base64
import http.client
import os
import tempfile
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from fedfisher_core.errors import InputError, anonymous
from fedfisher_core.settings import ExperimentSettings, TrackingSettings
from fedfisher_core.store import open_store
from flows.cluster import require_cluster
from flows.databases import require_database, require_writable
from tasks.tracking import require_layout

if TYPE_CHECKING:
    from fedfisher_core.evaluation.memory import Load

_PATIENCE_SECONDS = 5
# What MLflow says to whoever calls it by a name that it was not told of.
_OTHER_NAME = b"Invalid Host header"
_MOST_BYTES = 1000


def require_places(settings: ExperimentSettings, largest: "Load | None") -> None:
    """Check that what a run writes to is there, and that workers elsewhere can do its tasks.

    Args:
        settings: the experiment.
        largest: what one of its jobs holds in memory at once, the one that holds most.

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
    require_cluster(settings.run, prefect_api, largest)


def require_mlflow(tracking: TrackingSettings) -> None:
    """Check that runs can be recorded.

    Args:
        tracking: where MLflow keeps runs.

    Raises:
        InputError: names the setting, its value and what is wrong.
    """
    path, name = tracking.database, f"tracking.mlflow={tracking.mlflow!r}"
    if path is None:
        place = tracking.mlflow.rstrip("/")
        _require_server(f"{place}/health", name)
        said = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        _require_welcome(f"{place}/api/2.0/mlflow/experiments/search?max_results=1", _mlflow_words(), name, said)
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
        # The environment's may hold a password, and nobody is asked by such an address.
        place = anonymous(api).rstrip("/")
        name = f"Prefect server {anonymous(api)!r} (tracking.prefect_api or PREFECT_API_URL)"
        _require_server(f"{place}/health", name)
        _require_welcome(f"{place}/admin/version", _prefect_words(), name, "PREFECT_API_AUTH_STRING or PREFECT_API_KEY")


def _require_server(address: str, name: str) -> None:
    try:
        with urllib.request.urlopen(address, timeout=_PATIENCE_SECONDS):
            pass
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise InputError(f"{name} can't be reached: {getattr(error, 'reason', error)}") from error


def _require_welcome(address: str, words: str | None, name: str, said: str) -> None:
    """Check that a server that answers everyone would do more for whoever knows its password."""
    request = urllib.request.Request(address, headers={"Authorization": words} if words else {})
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS):
            pass
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.FORBIDDEN and _OTHER_NAME in _said_by(error):
            raise InputError(
                f"{name} answers to other names only: {error.code} {error.reason}; allowed: names that its "
                "MLFLOW_SERVER_ALLOWED_HOSTS has, where the server is started"
            ) from error
        # What else it may have against this question is found out when it is used.
        if error.code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            state = "refuses the credentials" if words else "asks for credentials"
            raise InputError(f"{name} {state}: {error.code} {error.reason}; they are read from {said}") from error
    except (OSError, http.client.HTTPException) as error:
        raise InputError(f"{name} can't be reached: {getattr(error, 'reason', error)}") from error


def _said_by(error: urllib.error.HTTPError) -> bytes:
    """Read the beginning of what a server says beside a code, as far as it comes."""
    try:
        return error.read(_MOST_BYTES)
    except (OSError, http.client.HTTPException):
        return b""


def _mlflow_words() -> str | None:
    """What MLflow's own client would say to a server."""
    # Most runs are recorded in a file, and need none of MLflow so early.
    from mlflow.utils.credentials import read_mlflow_creds

    found = read_mlflow_creds()
    if found.username and found.password:
        return _basic(f"{found.username}:{found.password}")
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    return f"Bearer {token}" if token else None


def _prefect_words() -> str | None:
    """What Prefect's own client would say to a server."""
    from prefect.settings import get_current_settings

    api = get_current_settings().api
    if api.auth_string is not None:
        return _basic(api.auth_string.get_secret_value())
    return f"Bearer {api.key.get_secret_value()}" if api.key is not None else None


def _basic(words: str) -> str:
    return f"Basic {base64.b64encode(words.encode()).decode()}"
