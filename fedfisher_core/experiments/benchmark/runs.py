"""The runs of a benchmark in MLflow, where methods are compared."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cache, partial

import numpy as np

from fedfisher_core.experiments.benchmark.plan import BenchmarkPlan
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.summary import MethodSummary, Setting, summarise
from fedfisher_core.federation.measuring import read_result
from fedfisher_core.federation.partition import class_names, label_counts
from fedfisher_core.reporting.runs import Record, Runs, digest
from fedfisher_core.settings import Cell
from fedfisher_core.store import Artifact
from fedfisher_core.walk import Outcome

_METRICS = (
    "accuracy",
    "loss",
    "worst_client_accuracy",
    "worst_class_accuracy",
    "client_train_seconds",
    "client_encode_seconds",
    "server_seconds",
    "upload_bits",
    "upload_bits_formula",
    "download_bits",
    "peak_memory_bytes",
)
_SUMMARISED = (
    "accuracy",
    "loss",
    "worst_client_accuracy",
    "worst_class_accuracy",
    "server_seconds",
    "upload_bits",
    "download_bits",
)
_SETTING_FIELDS = ("dataset", "model", "partition", "num_clients")
_DPI = 80

Picture = Callable[[Cell, Artifact], bytes]


def make_runs(plan: BenchmarkPlan, outcome: Outcome, rows: Sequence[Row]) -> Runs:
    """List one run for every row, and one summary run for every setting and method.

    Args:
        plan: the benchmark.
        outcome: of its jobs.
        rows: the results.

    Returns:
        The runs.
    """
    places = {place.cell: place for place in plan.federations.places}
    varying = [name for name in _SETTING_FIELDS if len({getattr(row, name) for row in rows}) > 1]
    # All methods of a federation share the picture of who holds what, wherever their rows stand.
    picture = cache(_partition_picture)
    single = []
    for row in rows:
        place = places[_cell(row)]
        partition = outcome.artifacts[plan.federations.partition(place).name]
        result = outcome.artifacts[plan.federations.aggregation(place, row.method).name]
        single.append(_record(row, varying, place.cell, partition, result, picture))
    return Runs(single=single, summary=list(_summary_records(rows)))


def _record(
    row: Row, varying: Sequence[str], cell: Cell, partition: Artifact, result: Artifact, picture: Picture
) -> Record:
    return Record(
        name=_run_name(row, varying),
        params=_setting_params(row) | {"method": row.method, "seed": str(row.seed)},
        metrics={name: float(value) for name in _METRICS if (value := getattr(row, name)) is not None}
        | {f"{name}_seconds": seconds for name, seconds in row.client_statistics_seconds.items()},
        tags={
            "artifact": row.artifact,
            "method_settings": json.dumps(row.method_settings),
            "reference": str(row.reference).lower(),
            "uses_validation": str(row.uses_validation).lower(),
            "failed_clients": json.dumps(row.failed_clients),
            "start_sent": str(row.start_sent),
        },
        drawn_from=(partition.digest, result.digest),
        draw=partial(_row_figures, f"{row.method}, {cell.label}", result, partition, partial(picture, cell, partition)),
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


def _row_figures(title: str, result: Artifact, partition: Artifact, picture: Callable[[], bytes]) -> dict[str, bytes]:
    from fedfisher_core.experiments.benchmark.grids import confusion_figure
    from fedfisher_core.reporting.drawing import to_png

    confusion = np.array(read_result(result).measures.confusion)
    figure = confusion_figure(confusion, list(class_names(partition)), title)
    return {"partition.png": picture(), "confusion.png": to_png(figure, dpi=_DPI)}


def _partition_picture(cell: Cell, partition: Artifact) -> bytes:
    """Draw who holds what."""
    from fedfisher_core.experiments.benchmark.grids import partition_figure
    from fedfisher_core.reporting.drawing import to_png

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
    # Drawing is loaded where a run is new only.
    from fedfisher_core.experiments.benchmark import figures
    from fedfisher_core.reporting.drawing import to_png

    return {
        "accuracy_by_alpha.png": to_png(figures.accuracy_by_alpha_figure(rows), dpi=_DPI),
        "accuracy_by_bits.png": to_png(figures.accuracy_by_bits_figure(rows), dpi=_DPI),
        "time.png": to_png(figures.time_figure(rows), dpi=_DPI),
    }


def _means(method: MethodSummary) -> dict[str, float]:
    metrics = {}
    for name in _SUMMARISED:
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
