"""Runs in MLflow, written anew only where they have changed."""

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fedfisher_core.settings import TrackingSettings

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

# Without this tag the UI takes the experiment for one about language models.
_MODEL_TRAINING = {"mlflow.experimentKind": "custom_model_development"}


@dataclass(frozen=True)
class Record:
    """One MLflow run.

    Args:
        name: what the UI calls it.
        params: what it was run with; they identify the run within its experiment.
        metrics: what came out.
        tags: what else is worth reading.
        drawn_from: digests of what the figures show.
        draw: makes the figures, PNG files by name; called only if the run is written.
        series: metrics that are drawn over a quantity: by name, values by MLflow's step.
    """

    name: str
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    drawn_from: tuple[str, ...]
    draw: Callable[[], Mapping[str, bytes]]
    series: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """Digest of what identifies the run."""
        return digest(self.params)

    @property
    def content(self) -> str:
        """Digest of everything that the run holds."""
        held = [self.name, self.params, self.metrics, self.tags, self.drawn_from]
        return digest([*held, self.series] if self.series else held)


def write_runs(
    settings: TrackingSettings,
    experiment: str,
    *,
    single: Iterable[Record],
    summary: Iterable[Record],
    tags: Mapping[str, str],
) -> int:
    """Write the runs of an experiment, and those that sum them up; a run that was recorded before is updated.

    Args:
        settings: where MLflow keeps runs and figures.
        experiment: the experiment's name; the summary's is this with `-summary`.
        single: the runs.
        summary: those of the summary.
        tags: on every run.

    Returns:
        How many runs were written; those that had not changed were not.
    """
    # Importing MLflow takes seconds, which a worker that only trains should not spend.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=settings.mlflow)
    written = _write(client, settings, experiment, single, tags)
    return written + _write(client, settings, f"{experiment}-summary", summary, tags)


def _write(
    client: "MlflowClient",
    settings: TrackingSettings,
    experiment: str,
    records: Iterable[Record],
    tags: Mapping[str, str],
) -> int:
    experiment_id = _experiment(client, settings, experiment)
    known = {run.data.tags.get("identity"): run for run in _runs(client, experiment_id)}
    written = 0
    for one in records:
        run = known.get(one.identity)
        if run is not None and run.data.tags.get("content") == one.content:
            continue
        if run is not None and one.series:
            # Points can only be added to a series, and old ones would be drawn among the new.
            client.delete_run(run.info.run_id)
            run = None
        if run is None:
            run = client.create_run(experiment_id, run_name=one.name, tags={"identity": one.identity})
        else:
            client.update_run(run.info.run_id, name=one.name)
        _fill(client, run.info.run_id, one, tags)
        written += 1
    return written


def _fill(client: "MlflowClient", run_id: str, one: Record, tags: Mapping[str, str]) -> None:
    from mlflow.entities import Metric, Param, RunTag

    now = int(time.time() * 1000)
    with tempfile.TemporaryDirectory() as folder:
        for name, data in one.draw().items():
            Path(folder, name).write_bytes(data)
        client.log_artifacts(run_id, folder, "figures")
    # The content's digest comes last: a run that was cut off before is written again.
    client.log_batch(
        run_id,
        metrics=[Metric(name, value, now, 0) for name, value in one.metrics.items()]
        + [Metric(name, value, now, at) for name, values in one.series.items() for at, value in values.items()],
        params=[Param(name, value) for name, value in one.params.items()],
        tags=[RunTag(name, value) for name, value in ({**one.tags, **tags, "content": one.content}).items()],
    )
    client.set_terminated(run_id)


def _experiment(client: "MlflowClient", settings: TrackingSettings, name: str) -> str:
    found = client.get_experiment_by_name(name)
    if found is not None:
        if found.lifecycle_stage == "deleted":
            client.restore_experiment(found.experiment_id)
        return found.experiment_id
    local = settings.mlflow.startswith("sqlite:")
    location = (settings.mlflow_artifacts / name).absolute().as_uri() if local else None
    return client.create_experiment(name, artifact_location=location, tags=_MODEL_TRAINING)


def _runs(client: "MlflowClient", experiment_id: str) -> "Iterator[Run]":
    token = None
    while True:
        page = client.search_runs([experiment_id], max_results=1000, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def digest(value: object) -> str:
    """Digest of anything that JSON can write, 24 hexadecimal digits."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=dict).encode()).hexdigest()[:24]
