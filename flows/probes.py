"""Checks, before any work, that a run can write to all its locations and reach its servers."""

import base64
import os
import tempfile
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from fedfisher_core.engine.errors import InputError, anonymous
from fedfisher_core.engine.store import open_store
from fedfisher_core.settings import ExperimentSettings, TrackingSettings
from flows.cluster import require_cluster
from flows.reach import require_database, require_writable, response_of, why_unreachable

if TYPE_CHECKING:
    from fedfisher_core.models.memory import Load

# A busy machine keeps a request waiting for longer than a user expects; a server that is gone refuses it at once.
_PATIENCE_SECONDS = 60
# MLflow's answer to a request that uses a host name it does not know.
_OTHER_NAME = b"Invalid Host header"
_MOST_BYTES = 1000
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


def require_reachable(settings: ExperimentSettings, largest: "Load | None") -> None:
    """Check all locations that a run writes to, its servers and its workers.

    Args:
        largest: the most that one of its jobs holds in memory.

    Raises:
        InputError: names the setting, its value and what is wrong.
    """
    open_store(settings.run.store, settings.run.cache).prepare()
    require_writable(settings.run.reports, f"run.reports={str(settings.run.reports)!r}")
    _require_replaceable(settings.run.reports / settings.name)
    _require_temporary_folder()
    _require_proxies()
    require_mlflow(settings.tracking)
    prefect_api = settings.tracking.prefect_api or os.environ.get("PREFECT_API_URL") or None
    _require_prefect(prefect_api)
    require_cluster(settings.run, prefect_api, largest)


def require_mlflow(tracking: TrackingSettings) -> None:
    """Check that runs can be recorded; an `InputError` names the setting, its value and what is wrong."""
    path, name = tracking.database, f"tracking.mlflow={tracking.mlflow!r}"
    if path is None:
        place = tracking.mlflow.rstrip("/")
        _require_server(f"{place}/health", name)
        said = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        _require_credentials(
            f"{place}/api/2.0/mlflow/experiments/search?max_results=1", _mlflow_authorization(), name, said
        )
        return
    require_writable(path.parent, name)
    require_database(path, name)
    artifacts = tracking.mlflow_artifacts
    require_writable(artifacts, f"tracking.mlflow_artifacts={str(artifacts)!r}")


def _require_replaceable(folder: Path) -> None:
    """Check the folder of a report if it exists; none is made, since a later check may refuse the run."""
    if folder.exists() or folder.is_symlink():
        require_writable(folder, f"the report's folder {str(folder)!r} (run.reports and name)")


def _require_temporary_folder() -> None:
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        raise InputError(f"no temporary folder can be written (TMPDIR): {error.strerror}") from error


def _require_proxies() -> None:
    """Check the environment's proxies: Prefect's client reads all of them, even if it uses none."""
    given = {name: os.environ[name] for name in _PROXIES if os.environ.get(name)}
    if not given:
        return
    import httpx

    try:
        httpx.Client().close()
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        values = ", ".join(f"{name}={anonymous(value)!r}" for name, value in given.items())
        raise InputError(
            f"the environment's proxies can't be used: {values}: {anonymous(str(error))}; allowed: http://HOST:PORT, "
            "https://HOST:PORT, socks5://HOST:PORT or socks5h://HOST:PORT, and names of hosts in no_proxy"
        ) from error


def _require_prefect(api: str | None) -> None:
    if api is not None:
        # An address from the environment may hold a password, which belongs in no request's address.
        place = anonymous(api).rstrip("/")
        name = f"Prefect server {anonymous(api)!r} (tracking.prefect_api or PREFECT_API_URL)"
        _require_server(f"{place}/health", name)
        code, version = _require_credentials(
            f"{place}/admin/version", _prefect_authorization(), name, "PREFECT_API_AUTH_STRING or PREFECT_API_KEY"
        )
        # A server of Prefect answers with a string in JSON. Prefect's cloud does not say its version.
        is_other = code == HTTPStatus.NOT_FOUND or (code == HTTPStatus.OK and not version.startswith(b'"'))
        if is_other and not _is_cloud(place):
            raise InputError(f"{name} is no API of Prefect; allowed: an address such as http://127.0.0.1:4200/api")


def _require_server(address: str, name: str) -> None:
    if reason := why_unreachable(address, seconds=_PATIENCE_SECONDS):
        raise InputError(f"{name} can't be reached: {reason}")


def _require_credentials(address: str, authorization: str | None, name: str, said: str) -> tuple[int, bytes]:
    """Check that a server that answers accepts the credentials, or needs none; return its code and first bytes."""
    try:
        with response_of(address, authorization=authorization, seconds=_PATIENCE_SECONDS) as answer:
            code, reason = answer.status_code, answer.reason_phrase
            beginning = next(answer.iter_bytes(_MOST_BYTES), b"")
    except OSError as error:
        raise InputError(f"{name} can't be reached: {error}") from error
    if _OTHER_NAME in beginning:
        raise InputError(
            f"{name} answers to other names only: {code} {reason}; allowed: names that its "
            "MLFLOW_SERVER_ALLOWED_HOSTS has, where the server is started"
        )
    # Other errors are reported when the server is used.
    if code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        state = "refuses the credentials" if authorization else "asks for credentials"
        raise InputError(f"{name} {state}: {code} {reason}; they are read from {said}")
    return code, beginning


def _mlflow_authorization() -> str | None:
    """Return the header Authorization that MLflow's own client would send."""
    # Most runs are recorded in a file, and do not need MLflow so early.
    from mlflow.utils.credentials import read_mlflow_creds

    found = read_mlflow_creds()
    if found.username and found.password:
        return _basic(f"{found.username}:{found.password}")
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    return f"Bearer {token}" if token else None


def _prefect_authorization() -> str | None:
    """Return the header Authorization that Prefect's own client would send."""
    from prefect.settings import get_current_settings

    api = get_current_settings().api
    if api.auth_string is not None:
        return _basic(api.auth_string.get_secret_value())
    return f"Bearer {api.key.get_secret_value()}" if api.key is not None else None


def _is_cloud(place: str) -> bool:
    from prefect.settings import get_current_settings

    return place.startswith(get_current_settings().cloud.api_url)


def _basic(credentials: str) -> str:
    return f"Basic {base64.b64encode(credentials.encode()).decode()}"
