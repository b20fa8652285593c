"""The task that records a benchmark in MLflow, where methods are compared."""

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedfisher_core.reporting.drawing import to_png
from fedfisher_core.reporting.figures import accuracy_by_alpha_figure, accuracy_by_bits_figure, time_figure
from fedfisher_core.reporting.grids import confusion_figure, partition_figure
from fedfisher_core.reporting.rows import Row
from fedfisher_core.reporting.summary import MethodSummary, Setting, summarise
from fedfisher_core.settings import Cell, TrackingSettings
from fedfisher_core.steps.aggregation import read_result
from fedfisher_core.steps.partitions import class_names, label_counts
from fedfisher_core.store import Artifact
from tasks.options import step

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_METRICS = (
    "accuracy",
    "loss",
    "worst_client_accuracy",
    "worst_class_accuracy",
    "client_train_seconds",
    "server_seconds",
    "upload_bits",
    "upload_bits_formula",
    "download_bits",
    "peak_memory_bytes",
)
_SETTING_FIELDS = ("dataset", "model", "partition", "num_clients")
_DPI = 80
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


@step(run_name="record in MLflow")
def record(
    settings: TrackingSettings,
    experiment: str,
    rows: Sequence[Row],
    partitions: Mapping[Cell, Artifact],
    aggregates: Mapping[Cell, Mapping[str, Artifact]],
    tags: Mapping[str, str],
) -> int:
    """Write one run for every row, and one summary run for every setting and method.

    A row that was recorded before updates its run.

    Args:
        settings: where MLflow keeps runs and figures.
        experiment: the experiment's name; the summary's is this with `-summary`.
        rows: the results.
        partitions: who holds what, by cell.
        aggregates: results by cell and method.
        tags: on every run.

    Returns:
        How many runs were written; those that had not changed were not.
    """
    # Importing MLflow takes seconds, which a worker that only trains should not spend.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=settings.mlflow)
    written = write_records(client, settings, experiment, _row_records(rows, partitions, aggregates), tags)
    return written + write_records(client, settings, f"{experiment}-summary", _summary_records(rows), tags)


def _row_records(
    rows: Sequence[Row],
    partitions: Mapping[Cell, Artifact],
    aggregates: Mapping[Cell, Mapping[str, Artifact]],
) -> Iterator[Record]:
    varying = [name for name in _SETTING_FIELDS if len({getattr(row, name) for row in rows}) > 1]
    for row in rows:
        cell = _cell(row)
        partition, result = partitions[cell], aggregates[cell][row.method]
        yield Record(
            name=_run_name(row, varying),
            params=_setting_params(row) | {"method": row.method, "seed": str(row.seed)},
            metrics={name: float(getattr(row, name)) for name in _METRICS}
            | {f"{name}_seconds": seconds for name, seconds in row.client_statistics_seconds.items()},
            tags={
                "artifact": row.artifact,
                "method_settings": json.dumps(row.method_settings),
                "reference": str(row.reference).lower(),
                "uses_validation": str(row.uses_validation).lower(),
                "failed_clients": json.dumps(row.failed_clients),
            },
            drawn_from=(partition.digest, result.digest),
            draw=partial(_row_figures, f"{row.method}, {cell.label}", cell, partition, result),
        )


def _run_name(row: Row, varying: Sequence[str]) -> str:
    """The method, what differs between the settings of the benchmark, alpha and the seed: charts have little room."""
    place = [str(getattr(row, name)) for name in varying]
    return " ".join([row.method, *place, *([] if row.alpha is None else [f"a={row.alpha:g}"]), f"s={row.seed}"])


def _cell(row: Row) -> Cell:
    return Cell.model_validate(
        {
            "dataset": row.dataset,
            "model": row.model,
            "scheme": row.partition,
            "alpha": row.alpha,
            "clients": row.num_clients,
            "seed": row.seed,
        }
    )


def _row_figures(title: str, cell: Cell, partition: Artifact, result: Artifact) -> dict[str, bytes]:
    confusion = np.array(read_result(result)["measures"]["confusion"])
    figure = confusion_figure(confusion, list(class_names(partition)), title)
    return {"partition.png": _partition_picture(cell, partition), "confusion.png": to_png(figure, dpi=_DPI)}


@lru_cache(maxsize=1)
def _partition_picture(cell: Cell, partition: Artifact) -> bytes:
    """Draw who holds what; all methods of a cell, which come one after the other, share the picture."""
    counts = np.array(label_counts(partition))
    figure = partition_figure(counts, list(class_names(partition)), f"Images by client and class, {cell.label}")
    return to_png(figure, dpi=_DPI)


def _summary_records(rows: Sequence[Row]) -> Iterator[Record]:
    content = digest([asdict(row) for row in rows])
    charts = cache(partial(_charts, rows))
    for summary in summarise(rows):
        for method in summary.methods:
            yield Record(
                name=method.method,
                params=_setting_params(summary.setting) | {"method": method.method},
                metrics=_means(method),
                tags={"seeds": json.dumps(method.seeds), "reference": str(method.reference).lower()},
                drawn_from=(content,),
                draw=charts,
            )


def _charts(rows: Sequence[Row]) -> dict[str, bytes]:
    return {
        "accuracy_by_alpha.png": to_png(accuracy_by_alpha_figure(rows), dpi=_DPI),
        "accuracy_by_bits.png": to_png(accuracy_by_bits_figure(rows), dpi=_DPI),
        "time.png": to_png(time_figure(rows), dpi=_DPI),
    }


def _means(method: MethodSummary) -> dict[str, float]:
    metrics = {}
    for name in ("accuracy", "loss", "worst_client_accuracy", "worst_class_accuracy", "server_seconds", "upload_bits"):
        measure = getattr(method, name)
        metrics[name] = measure.mean
        if measure.deviation is not None:
            metrics[f"{name}_deviation"] = measure.deviation
    if method.difference is not None:
        metrics["accuracy_above_fedavg"] = method.difference.mean
    return metrics


def _setting_params(setting: Row | Setting) -> dict[str, str]:
    return {
        "dataset": setting.dataset,
        "model": setting.model,
        "partition": setting.partition,
        "alpha": "none" if setting.alpha is None else f"{setting.alpha:g}",
        "clients": str(setting.num_clients),
        "rounds": str(setting.num_rounds),
    }


def write_records(
    client: "MlflowClient",
    settings: TrackingSettings,
    experiment: str,
    records: Iterable[Record],
    tags: Mapping[str, str],
) -> int:
    """Write the runs of one experiment; a run that was recorded before is updated, or left if nothing has changed.

    Args:
        client: of the tracking server.
        settings: where MLflow keeps figures.
        experiment: the experiment's name.
        records: the runs.
        tags: on every run.

    Returns:
        How many runs were written.
    """
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
