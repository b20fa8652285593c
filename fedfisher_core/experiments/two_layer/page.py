"""The report of the two-layer experiment: one HTML page, its figures, and its runs in MLflow."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial

from fedfisher_core.engine.plan import Outcome
from fedfisher_core.experiments.two_layer.findings import Curve, curve_of, steps_finding, width_finding
from fedfisher_core.experiments.two_layer.plan import TwoLayerPlan
from fedfisher_core.experiments.two_layer.rows import METHODS, TwoLayerRow
from fedfisher_core.reporting.charts import Chart, Point, line_chart, to_html, to_png
from fedfisher_core.reporting.page import PageData, render
from fedfisher_core.reporting.runs import Record, Runs, digest

_LABELS = {
    "fedfisher": "FedFisher, full Fishers",
    "fedavg": "FedAvg",
    "local": "local models, own data (reference)",
}
_AXES = {"width": "width m", "local_steps": "local steps K"}
_FIXED = {"width": "local steps", "local_steps": "hidden units"}


def report_files(rows: Sequence[TwoLayerRow], page: PageData) -> dict[str, bytes]:
    """Make the page; every seed must have the same points. See `Experiment.files`."""
    width, steps = curve_of(rows, "width"), curve_of(rows, "local_steps")
    html = render(
        "two_layer.html.j2",
        page,
        findings=[width_finding(width), steps_finding(steps)],
        curves=[("1a", width, to_html(error_chart(width))), ("1b", steps, to_html(error_chart(steps)))],
        methods=METHODS,
        labels=_LABELS,
        axes=_AXES,
        fixed=_FIXED,
        seeds=width.seeds,
        artifacts={row.seed: row.artifact for row in rows},
    )
    return {"index.html": html.encode()}


def error_chart(curve: Curve) -> Chart:
    """Draw the training errors along a curve, both axes logarithmic.

    Lines are geometric means over seeds, in bands of the geometric standard deviation. Errors of 0 are left out.
    """
    points = [
        Point(method, _LABELS[method], point.value, band.geometric_mean, band.low, band.high)
        for method in METHODS
        for point in curve.points
        for band in (point.bands[method],)
        if band.geometric_mean > 0
    ]
    axes = _AXES[curve.name], f"training error at {curve.fixed} {_FIXED[curve.name]}"
    return line_chart(points, axes=axes, logarithmic=True)


def make_runs(plan: TwoLayerPlan, outcome: Outcome, rows: Sequence[TwoLayerRow]) -> Runs:
    """List one run for every method and seed, and one with the means over seeds for every method.

    MLflow's steps are the widths and the numbers of local steps, so that its charts of the two metrics are Figures 1a
    and 1b, with a line a run. See `Experiment.runs`.
    """
    # What both curves share.
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
    return {
        "error_by_width.png": to_png(error_chart(curve_of(rows, "width"))),
        "error_by_local_steps.png": to_png(error_chart(curve_of(rows, "local_steps"))),
    }
