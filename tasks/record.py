"""Runs in MLflow, written anew only where they have changed."""

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedfisher_core.engine.errors import LockedError, OutputError, UnwritableError
from fedfisher_core.engine.locks import scratch
from fedfisher_core.reporting.runs import SUMMARY, Dataset, Record, Runs
from fedfisher_core.settings import TrackingSettings
from tasks.common import step
from tasks.networks import keep
from tasks.tracking import artifact_locations, client_of, note, noted, recording

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput

log = logging.getLogger("fedfisher")

# Without this tag the UI takes the experiment for one about language models.
_MODEL_TRAINING = {"mlflow.experimentKind": "custom_model_development"}
# What MLflow's UI shows above the runs of an experiment.
_DESCRIPTION = "mlflow.note.content"
_REPORT = "report"
# Names the digest of all that is recorded of a run, once all of it is.
_CONTENT = "content"
# A run is seven requests or more, and a server that asks for a password hashes it for each, in one of its processes.
_WRITERS = 8


@step(run_name="record in MLflow")
def record(settings: TrackingSettings, experiment: str, runs: Callable[[], Runs], tags: Mapping[str, str]) -> int:
    """Write the runs of an experiment, and those that sum them up; a run that was recorded before is updated.

    Each of the two says in MLflow what it holds, and where the report is.

    Returns:
        How many runs were written; those that had not changed were not.

    Raises:
        InputError: MLflow can't use a local database.
        OutputError: MLflow can't be written to, or another process writes to it for too long.
    """
    wanted = runs()
    client = client_of(settings)
    from mlflow import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with recording(settings):
            known = noted(settings)
            records = {experiment: [*wanted.single], f"{experiment}{SUMMARY}": [*wanted.summary]}
            written = {name: _write(client, settings, name, found, tags) for name, found in records.items() if found}
            _describe(client, written)
            note(settings, known, experiment, wanted)
            return sum(len(one.anew) for one in written.values())
    except (MlflowException, SQLAlchemyError, OSError, LockedError, UnwritableError) as error:
        said = str(error).partition("\n")[0]
        raise OutputError(f"runs can't be recorded at {settings.mlflow}: {said}; all results are kept") from error


def _write(
    client: "MlflowClient",
    settings: TrackingSettings,
    experiment: str,
    records: Sequence[Record],
    tags: Mapping[str, str],
) -> "_Written":
    experiment_id = _experiment(client, settings, experiment)
    # The most that MLflow gives at once; others are found one by one.
    known = {run.data.tags.get("identity"): run for run in client.search_runs([experiment_id], max_results=50_000)}

    def write(one: Record) -> tuple[str, bool]:
        # Another process may have created the run since the list was read.
        wanted = f"tags.identity = '{one.identity}'"
        run = known.get(one.identity) or next(iter(client.search_runs([experiment_id], wanted)), None)
        if run is not None and run.data.tags.get(_CONTENT) == one.content:
            return run.info.run_id, False
        if run is not None and (
            one.series
            or run.data.metrics.keys() - one.metrics.keys()
            or run.data.params.items() - {**one.params, **one.settings}.items()
        ):
            # Points can only be added to a series, and old ones would be drawn among the new; metrics can't be removed,
            # and parameters neither that nor changed.
            client.delete_run(run.info.run_id)
            run = None
        if run is None:
            run = client.create_run(experiment_id, run_name=one.name, tags={"identity": one.identity})
        else:
            client.update_run(run.info.run_id, name=one.name)
            # What is cut off is neither what the run was nor what it is to be.
            client.set_tag(run.info.run_id, _CONTENT, "")
        _fill(client, experiment_id, run.info.run_id, one, tags)
        return run.info.run_id, True

    with ThreadPoolExecutor(_WRITERS if settings.database is None else 1) as pool:
        runs = list(pool.map(write, records))
    pages = [(run, one.page) for (run, _), one in zip(runs, records, strict=True) if one.page is not None]
    return _Written(experiment_id, [run for run, anew in runs if anew], *(pages[0] if pages else (None, None)))


@dataclass(frozen=True)
class _Written:
    """An experiment in MLflow.

    Args:
        holder: a run that holds the report's page; None where none does.
    """

    experiment_id: str
    anew: list[str]
    holder: str | None
    page: Path | None


def _describe(client: "MlflowClient", written: Mapping[str, _Written]) -> None:
    """Say on the page of each experiment what its runs are, and where the report is."""
    report = ""
    for one in written.values():
        if one.page is not None:
            # The address is one within MLflow's own page, wherever that is served.
            address = f"#/experiments/{one.experiment_id}/runs/{one.holder}/artifacts/{_REPORT}/{one.page.name}"
            report = f" [Report]({address}), also at `{one.page}`."
    for name, one in written.items():
        others = " ".join(
            f"[{other}](#/experiments/{found.experiment_id})" for other, found in written.items() if other != name
        )
        if name.endswith(SUMMARY):
            said = f"Each run is a mean over repetitions of {others}, where they stand one by one."
        else:
            said = "Each run is one result." + (f" Means over repetitions stand in {others}." if others else "")
        client.set_experiment_tag(one.experiment_id, _DESCRIPTION, said + report)


def _fill(client: "MlflowClient", experiment_id: str, run_id: str, one: Record, tags: Mapping[str, str]) -> None:
    from mlflow.entities import Metric, Param, RunTag

    now = int(time.time() * 1000)
    with scratch() as folder:
        for name, data in one.draw().items():
            (folder / name).write_bytes(data)
        client.log_artifacts(run_id, str(folder), one.folder)
    if one.page is not None:
        client.log_artifact(run_id, str(one.page), _REPORT)
    if one.dataset is not None:
        client.log_inputs(run_id, [_input(one.dataset)])
    if one.network is not None:
        keep(client, experiment_id, run_id, one.network)
    client.log_batch(
        run_id,
        metrics=[Metric(name, value, now, 0) for name, value in one.metrics.items()]
        + [Metric(name, value, now, at) for name, values in one.series.items() for at, value in values.items()],
        params=[Param(name, value) for name, value in {**one.params, **one.settings}.items()],
        tags=[RunTag(name, value) for name, value in {**one.tags, **tags}.items()],
    )
    client.set_terminated(run_id)
    # MLflow sends a long batch in parts, tags with the first. A run that is cut off before this is written again.
    client.set_tag(run_id, _CONTENT, one.content)


def _input(dataset: Dataset) -> "DatasetInput":
    from mlflow.entities import Dataset as MlflowDataset
    from mlflow.entities import DatasetInput, InputTag

    source = json.dumps({"uri": dataset.source})
    held = MlflowDataset(dataset.name, dataset.digest, source_type="uri", source=source)
    return DatasetInput(held, [InputTag("mlflow.data.context", "training and test")])


def _experiment(client: "MlflowClient", settings: TrackingSettings, name: str) -> str:
    places = artifact_locations(settings, name) if settings.database is not None else (None,)
    found = client.get_experiment_by_name(name)
    if found is not None and found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    if found is not None and settings.database is not None and found.artifact_location not in places:
        # Where an experiment and its runs keep figures can't be changed.
        former = f"{name} (experiment {found.experiment_id})"
        client.rename_experiment(found.experiment_id, former)
        log.warning(
            "MLflow looks for figures of experiment %r in %s, which is not this project's folder: it is now called %r, "
            "and this report's runs are recorded anew as %r",
            name,
            found.artifact_location,
            former,
            name,
        )
        found = None
    if found is not None:
        return found.experiment_id
    return client.create_experiment(name, artifact_location=places[0], tags=_MODEL_TRAINING)
