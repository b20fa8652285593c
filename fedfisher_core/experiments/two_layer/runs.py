"""The runs of the two-layer experiment in MLflow."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial

from fedfisher_core.experiments.two_layer.curves import curve_of
from fedfisher_core.experiments.two_layer.plan import TwoLayerPlan
from fedfisher_core.experiments.two_layer.rows import METHODS, TwoLayerRow
from fedfisher_core.reporting.runs import Record, Runs, digest
from fedfisher_core.walk import Outcome

_DPI = 80


def make_runs(plan: TwoLayerPlan, outcome: Outcome, rows: Sequence[TwoLayerRow]) -> Runs:
    """List one run for every method and seed, and one with the means over seeds for every method.

    MLflow's steps are the widths and the numbers of local steps, so that its charts of the two metrics are Figures
    1a and 1b, a line a run. See `Experiment.runs`.
    """
    # All that is the same along both curves.
    shared = plan.settings.two_layer.model_dump(mode="json", exclude={"widths", "steps", "seeds"})
    params = {name: f"{value:g}" for name, value in shared.items()}
    return Runs(single=list(_seed_records(rows, params)), summary=list(_summary_records(rows, params)))


def _seed_records(rows: Sequence[TwoLayerRow], params: Mapping[str, str]) -> Iterator[Record]:
    for seed, artifact in {row.seed: row.artifact for row in rows}.items():
        for method in METHODS:
            own = [row for row in rows if (row.seed, row.method) == (seed, method)]
            yield Record(
                name=f"{method} s={seed}",
                params={**params, "method": method, "seed": str(seed)},
                metrics={},
                tags={"artifact": artifact},
                series={
                    f"training_error_by_{curve}": {row.value: row.training_error for row in own if row.curve == curve}
                    for curve in ("width", "local_steps")
                },
            )


def _summary_records(rows: Sequence[TwoLayerRow], params: Mapping[str, str]) -> Iterator[Record]:
    curves = [curve_of(rows, "width"), curve_of(rows, "local_steps")]
    charts = cache(partial(_draw, rows))
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


def _draw(rows: Sequence[TwoLayerRow]) -> dict[str, bytes]:
    # Drawing is loaded where a run is new only.
    from fedfisher_core.experiments.two_layer.page import draw_curves

    return draw_curves(rows, dpi=_DPI)
