"""Runs in MLflow, written anew only where they have changed."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from fedfisher_core.errors import OutputError
from fedfisher_core.reporting.runs import SUMMARY, Record, Runs
from fedfisher_core.scratch import scratch
from fedfisher_core.settings import TrackingSettings
from tasks.options import step
from tasks.tracking import prepare_tracking, recording

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

# Without this tag the UI takes the experiment for one about language models.
_MODEL_TRAINING = {"mlflow.experimentKind": "custom_model_development"}
# Names the digest of all that is recorded of a run, once all of it is.
_CONTENT = "content"
# A run is seven requests or more, and a server that asks for a password hashes it for each, in one of its processes.
_WRITERS = 8


@step(run_name="record in MLflow")
def record(settings: TrackingSettings, experiment: str, runs: Callable[[], Runs], tags: Mapping[str, str]) -> int:
    """Write the runs of an experiment, and those that sum them up; a run that was recorded before is updated.

    Args:
        settings: where MLflow keeps runs and figures.
        experiment: the experiment's name; the summary's is this with `-summary`.
        runs: lists the runs; a callable, which Prefect does not look into.
        tags: on every run.

    Returns:
        How many runs were written; those that had not changed were not.

    Raises:
        InputError: a local database can't be laid out, or another process writes to it for too long.
        OutputError: MLflow can't be written to.
    """
    # Importing MLflow takes seconds, which a worker that only trains should not spend.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    # Otherwise it asks a server once more for each run, to print two lines.
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    from mlflow import MlflowClient, MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    wanted = runs()
    prepare_tracking(settings)
    try:
        with recording(settings):
            client = MlflowClient(tracking_uri=settings.mlflow)
            records = {experiment: wanted.single, f"{experiment}{SUMMARY}": wanted.summary}
            return sum(_write(client, settings, name, found, tags) for name, found in records.items() if found)
    except (MlflowException, SQLAlchemyError, OSError) as error:
        said = str(error).partition("\n")[0]
        raise OutputError(f"runs can't be recorded at {settings.mlflow}: {said}; all results are kept") from error


def _write(
    client: "MlflowClient",
    settings: TrackingSettings,
    experiment: str,
    records: Iterable[Record],
    tags: Mapping[str, str],
) -> int:
    experiment_id = _experiment(client, settings, experiment)
    known = {run.data.tags.get("identity"): run for run in _runs(client, experiment_id)}

    def write(one: Record) -> bool:
        # Whoever else writes to a server may have created the run since the list was read.
        run = known.get(one.identity) or next(_runs(client, experiment_id, f"tags.identity = '{one.identity}'"), None)
        if run is not None and run.data.tags.get(_CONTENT) == one.content:
            return False
        if run is not None and (one.series or run.data.metrics.keys() - one.metrics.keys()):
            # Points can only be added to a series, and old ones would be drawn among the new; metrics can't be removed.
            client.delete_run(run.info.run_id)
            run = None
        if run is None:
            run = client.create_run(experiment_id, run_name=one.name, tags={"identity": one.identity})
        else:
            client.update_run(run.info.run_id, name=one.name)
            # What is cut off is neither what the run was nor what it is to be.
            client.set_tag(run.info.run_id, _CONTENT, "")
        _fill(client, run.info.run_id, one, tags)
        return True

    with ThreadPoolExecutor(_WRITERS if settings.database is None else 1) as pool:
        return sum(pool.map(write, records))


def _fill(client: "MlflowClient", run_id: str, one: Record, tags: Mapping[str, str]) -> None:
    from mlflow.entities import Metric, Param, RunTag

    now = int(time.time() * 1000)
    with scratch() as folder:
        for name, data in one.draw().items():
            (folder / name).write_bytes(data)
        client.log_artifacts(run_id, str(folder), one.folder)
    client.log_batch(
        run_id,
        metrics=[Metric(name, value, now, 0) for name, value in one.metrics.items()]
        + [Metric(name, value, now, at) for name, values in one.series.items() for at, value in values.items()],
        params=[Param(name, value) for name, value in one.params.items()],
        tags=[RunTag(name, value) for name, value in {**one.tags, **tags}.items()],
    )
    client.set_terminated(run_id)
    # MLflow sends a long batch in parts, tags with the first. A run that is cut off before this is written again.
    client.set_tag(run_id, _CONTENT, one.content)


def _experiment(client: "MlflowClient", settings: TrackingSettings, name: str) -> str:
    found = client.get_experiment_by_name(name)
    if found is not None:
        if found.lifecycle_stage == "deleted":
            client.restore_experiment(found.experiment_id)
        return found.experiment_id
    local = settings.database is not None
    location = (settings.mlflow_artifacts / name).absolute().as_uri() if local else None
    return client.create_experiment(name, artifact_location=location, tags=_MODEL_TRAINING)


def _runs(client: "MlflowClient", experiment_id: str, wanted: str = "") -> "Iterator[Run]":
    token = None
    while True:
        page = client.search_runs([experiment_id], wanted, max_results=1000, page_token=token)
        yield from page
        token = page.token
        if not token:
            return
