"""Tasks of the two-layer experiment: measure a seed, write the report, record in MLflow."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path

from fedfisher_core.steps import theory
from fedfisher_core.steps.theory import TwoLayerContext
from fedfisher_core.store import Artifact
from fedfisher_core.theory.curves import curve_of
from fedfisher_core.theory.experiment import TwoLayerSettings
from fedfisher_core.theory.page import TwoLayerReport, draw_curves, write_two_layer
from fedfisher_core.theory.rows import METHODS, TwoLayerRow
from fedfisher_core.theory.settings import TwoLayerBenchmark
from tasks.options import computing, step
from tasks.reporting import page_of
from tasks.runs import Record, digest, write_runs

_DPI = 80


@step(run_name="two-layer networks: seed={seed}")
def measure_seed(context: TwoLayerContext, seed: int) -> Artifact:
    """Measure both curves with one seed."""
    with computing(context):
        return theory.measure_seed(context, seed)


@step(run_name="report")
def report_two_layer(settings: TwoLayerBenchmark, command: str, rows: Sequence[TwoLayerRow]) -> Path:
    """Write results.json, results.csv, index.html and the two figures.

    Args:
        settings: the experiment.
        command: what was run.
        rows: the results.

    Returns:
        The report's folder.
    """
    shown = settings.model_dump(mode="json", exclude={"report"})
    report = TwoLayerReport(rows=rows, **page_of(settings, settings.report, command=command, shown=shown))
    return write_two_layer(report, settings.run.reports / settings.name)


@step(run_name="record in MLflow")
def record_two_layer(settings: TwoLayerBenchmark, rows: Sequence[TwoLayerRow], tags: Mapping[str, str]) -> int:
    """Write one run for every method and seed, and one summary run for every method with the means over seeds.

    MLflow's steps are the widths and the numbers of local steps, so that its charts of the two metrics are Figures
    1a and 1b, a line a run.

    Args:
        settings: the experiment.
        rows: the results.
        tags: on every run.

    Returns:
        How many runs were written; those that had not changed were not.
    """
    params = _params(settings.two_layer)
    return write_runs(
        settings.tracking,
        settings.name,
        single=_seed_records(rows, params),
        summary=_summary_records(rows, params),
        tags=tags,
    )


def _params(settings: TwoLayerSettings) -> dict[str, str]:
    """Everything that is the same along both curves."""
    shared = settings.model_dump(mode="json", exclude={"widths", "steps", "seeds"})
    return {name: f"{value:g}" for name, value in shared.items()}


def _seed_records(rows: Sequence[TwoLayerRow], params: Mapping[str, str]) -> Iterator[Record]:
    for seed, artifact in {row.seed: row.artifact for row in rows}.items():
        for method in METHODS:
            own = [row for row in rows if (row.seed, row.method) == (seed, method)]
            yield Record(
                name=f"{method} s={seed}",
                params={**params, "method": method, "seed": str(seed)},
                metrics={},
                tags={"artifact": artifact},
                drawn_from=(),
                draw=dict,
                series={
                    f"training_error_by_{curve}": {row.value: row.training_error for row in own if row.curve == curve}
                    for curve in ("width", "local_steps")
                },
            )


def _summary_records(rows: Sequence[TwoLayerRow], params: Mapping[str, str]) -> Iterator[Record]:
    curves = [curve_of(rows, "width"), curve_of(rows, "local_steps")]
    charts = cache(partial(draw_curves, rows, dpi=_DPI))
    for method in METHODS:
        series = {}
        for curve in curves:
            bands = {point.value: point.bands[method] for point in curve.points}
            name = f"training_error_by_{curve.name}"
            series[name] = {value: band.mean for value, band in bands.items()}
            series[f"{name}_geometric_deviation"] = {
                value: band.factor for value, band in bands.items() if band.factor is not None
            }
        yield Record(
            name=method,
            params={**params, "method": method},
            metrics={},
            tags={"seeds": json.dumps(curves[0].seeds)},
            drawn_from=(digest([asdict(row) for row in rows]),),
            draw=charts,
            series=series,
        )
