"""What MLflow keeps runs in, opened by its client alone, and a note of our own of what a local database holds."""

import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlencode, urlsplit

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.files import read_regular
from fedfisher_core.reporting.rows import write_file
from fedfisher_core.reporting.runs import SUMMARY, Record, Runs, digest
from fedfisher_core.settings import TrackingSettings
from tasks.waiting import patiently_held

if TYPE_CHECKING:
    from mlflow import MlflowClient

SCHEME = "fedfisher:"
"""Scheme of places that are seen from the folder of MLflow's database; see `tasks.figures`."""

_PATIENCE_SECONDS = 1800
_MOST_NOTE_BYTES = 2**24

_METHODS = "tags.reference = 'false'"
_BEST_FIRST = {"orderByKey": "metrics.`accuracy`", "orderByAsc": "false"}


def client_of(settings: TrackingSettings) -> "MlflowClient":
    """Open what MLflow keeps runs in; a local database is made where there is none.

    Raises:
        InputError: MLflow can't use the database, or another process makes it for too long.
    """
    # Otherwise it asks a server once more for each run, to print two lines.
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    # Importing MLflow takes seconds, which a worker that only trains should not spend.
    from alembic.util import CommandError
    from mlflow import MlflowClient, MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    path = settings.database
    try:
        if path is not None and not _holds_something(path):
            with recording(settings):
                if not _holds_something(path):
                    # MLflow can't go on with a database that it has half made, so it makes it elsewhere.
                    made = path.with_name(f"{path.name}.new")
                    made.unlink(missing_ok=True)
                    MlflowClient(tracking_uri=f"sqlite:///{made.absolute()}")
                    made.replace(path)
        return MlflowClient(tracking_uri=settings.mlflow)
    except (MlflowException, SQLAlchemyError, CommandError, OSError) as error:
        said = str(error).partition("\n")[0]
        raise InputError(
            f"tracking.mlflow={settings.mlflow!r} can't be used by MLflow: {said}; allowed: a database that the "
            "installed version of MLflow can use, or another file"
        ) from error


def require_usable(settings: TrackingSettings) -> None:
    """Have MLflow open a local database that holds something, before work is done that is to be recorded there.

    Raises:
        InputError: MLflow can't use it.
    """
    if settings.database is not None and _holds_something(settings.database):
        client_of(settings)


def _holds_something(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def recording(settings: TrackingSettings) -> AbstractContextManager[None]:
    """Let one process at a time write runs into a local database, so that none is written twice.

    Args:
        settings: where MLflow keeps runs; a server orders its writers itself.

    Raises:
        LockedError: another process writes for too long; the message names it.
    """
    path = settings.database
    if path is None:
        return nullcontext()
    lock = path.with_name(f"{path.name}.lock")
    return patiently_held(lock, purpose="records runs in MLflow", timeout=_PATIENCE_SECONDS)


def is_recorded(settings: TrackingSettings, experiment: str, runs: Runs) -> bool:
    """Say whether a local database is known to hold runs as they are, without the seconds that MLflow takes to load.

    Returns:
        Whether all of it is there; False for a server, and for a database that another program has changed.
    """
    return settings.database is not None and noted(settings).get(experiment) == _content(settings, experiment, runs)


def noted(settings: TrackingSettings) -> Mapping[str, str]:
    """Read which runs a local database holds.

    Returns:
        Digests by experiment; none for a server, which others change, and where the database has changed since.
    """
    if settings.database is None:
        return {}
    try:
        state, *lines = read_regular(_note(settings), limit=_MOST_NOTE_BYTES).decode().split("\n")
        if state != _state(settings):
            return {}
    except (OSError, ValueError):
        # It is written anew.
        return {}
    return {name: content for content, _, name in (line.partition(" ") for line in lines)}


def note(settings: TrackingSettings, known: Mapping[str, str], experiment: str, runs: Runs) -> None:
    """Note what a local database holds, once it does.

    Args:
        settings: where MLflow keeps runs; of what a server holds, which others change, there is no note.
    """
    if settings.database is not None:
        held = {**known, experiment: _content(settings, experiment, runs)}
        lines = [_state(settings), *(f"{content} {name}" for name, content in held.items())]
        write_file(_note(settings), "\n".join(lines).encode())


def _note(settings: TrackingSettings) -> Path:
    assert settings.database is not None
    return settings.database.with_name(f"{settings.database.name}.recorded")


def _state(settings: TrackingSettings) -> str:
    """What changes whenever a database is written to, by any program."""
    assert settings.database is not None
    status = settings.database.stat()
    return f"{status.st_size} {status.st_mtime_ns}"


def _content(settings: TrackingSettings, experiment: str, runs: Runs) -> str:
    def contents(records: Iterable[Record]) -> list[str]:
        return [one.content for one in records]

    return digest([artifact_locations(settings, experiment)[0], contents(runs.single), contents(runs.summary)])


def artifact_locations(settings: TrackingSettings, experiment: str) -> tuple[str, ...]:
    """Say where an experiment may keep its figures, as MLflow writes it down in a local database.

    Returns:
        Its place as seen from the database, with which it may be moved, where figures lie below the database's folder;
        and as MLflow itself would have it. New experiments get the first.
    """
    assert settings.database is not None
    folder = Path(os.path.abspath(settings.mlflow_artifacts / experiment))
    home = settings.database.absolute().parent
    places: tuple[str, ...] = (folder.as_uri(),)
    # MLflow does not know of it where the project is found without having been installed.
    if folder.is_relative_to(home) and entry_points(group="mlflow.artifact_repository", name=SCHEME.rstrip(":")):
        places = (f"{SCHEME}{quote(folder.relative_to(home).as_posix())}", *places)
    return places


def lost_figures(client: "MlflowClient") -> dict[str, str]:
    """List the experiments of a local database whose figures are not where MLflow looks for them.

    Returns:
        By the experiment's name, where MLflow looks.
    """
    # The first experiment is MLflow's own.
    places = {one.name: one.artifact_location for one in client.search_experiments() if one.experiment_id != "0"}
    return {
        name: place
        for name, place in places.items()
        if place.startswith("file:") and not Path(unquote(urlsplit(place).path)).is_dir()
    }


def comparison_page_of(client: "MlflowClient", name: str) -> str:
    """Find the page of an experiment's comparison: methods without references, the most accurate first.

    Args:
        name: of the experiment; its means over repetitions are shown where there are any.

    Returns:
        What follows the server's address; nothing where no run of the experiment is recorded.
    """
    named = (client.get_experiment_by_name(one) for one in (f"{name}{SUMMARY}", name))
    # MLflow finds deleted experiments too.
    found = next((one for one in named if one is not None and one.lifecycle_stage == "active"), None)
    if found is None:
        return ""
    # Runs of other experiments than benchmarks are of no methods, and the page shows them all.
    methods = client.search_runs([found.experiment_id], filter_string=_METHODS, max_results=1)
    chosen = {"searchFilter": _METHODS, **_BEST_FIRST} if methods else {}
    # Otherwise the page takes the experiment for one about language models.
    asked = urlencode({**chosen, "workflowType": "machine_learning"})
    return f"#/experiments/{found.experiment_id}/runs?{asked}"
