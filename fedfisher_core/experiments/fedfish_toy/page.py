"""The report of the toy regression: one HTML page, its figures, and its runs in MLflow."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import Any

import altair as alt

from fedfisher_core.engine.plan import Outcome
from fedfisher_core.engine.store import Artifact
from fedfisher_core.experiments.fedfish_toy.plan import (
    FedFishToyPlan,
    domain_points,
    interval_of,
    read_measured,
    true_values,
)
from fedfisher_core.experiments.fedfish_toy.rows import METHODS, FedFishToyRow
from fedfisher_core.experiments.fedfish_toy.summary import (
    LEVEL,
    Setting,
    findings_of,
    interval_text,
    number,
    overlap_name,
    settings_of,
)
from fedfisher_core.reporting.charts import COLOURS, GREY, Chart, to_html, to_png
from fedfisher_core.reporting.formats import plural, setting_value
from fedfisher_core.reporting.measure import gather
from fedfisher_core.reporting.page import PageData, render
from fedfisher_core.reporting.runs import Record, Runs, digest

LABELS = {"fedavg": "FedAvg", "fedfish": "FedFish"}


@dataclass(frozen=True)
class Drawn:
    """One federation, to be drawn.

    Args:
        intervals: lower and upper end of each client's.
        samples: input and target of each client's samples.
        epochs: local epochs after which the functions were learned.
        functions: values at the points, by the function's name.
    """

    overlap: float
    intervals: Sequence[tuple[float, float]]
    samples: Sequence[Sequence[tuple[float, float]]]
    epochs: int
    functions: Mapping[str, Sequence[float]]
    points: Sequence[float]


_TRUE = "true function"


def function_charts(drawn: Sequence[Drawn]) -> list[Chart]:
    """Draw the functions of clients and global models with the true one, as in the paper's Figure 2.

    There is a chart for each overlap. A client's function is drawn on its own interval.
    """
    # Far from its samples a model may have any values, so the charts show the range of the samples.
    values = [target for one in drawn for samples in one.samples for _, target in samples]
    margin = 0.35 * (max(values) - min(values)) or 1.0 if values else 1.0
    ends = (min(values, default=0.0) - margin, max(values, default=0.0) + margin)
    return [_function_chart(one, f"{overlap_name(one.overlap)}, {plural(one.epochs, 'epoch')}", ends) for one in drawn]


def _function_chart(drawn: Drawn, title: str, ends: tuple[float, float]) -> Chart:
    inside = {_client(client): interval for client, interval in enumerate(drawn.intervals)}
    lines = [
        {"method": name, "x": x, "y": y}
        for name, curve in drawn.functions.items()
        for x, y in zip(drawn.points, curve, strict=True)
        if name not in inside or inside[name][0] <= x <= inside[name][1]
    ]
    samples = [{"method": _client(client), "x": x, "y": y} for client, own in enumerate(drawn.samples) for x, y in own]
    names = list(drawn.functions)
    colours = [GREY if name == _TRUE else COLOURS[place] for place, name in enumerate(names[1:] + names[:1])]
    colour = alt.Color("method:N", scale=alt.Scale(domain=names[1:] + names[:1], range=colours), title=None)
    base = alt.Chart().encode(
        x=alt.X("x:Q", axis=alt.Axis(grid=False)),
        y=alt.Y("y:Q", title=None, scale=alt.Scale(domain=ends)),
        color=colour,
    )
    curves = base.mark_line(clip=True, strokeWidth=1.6)
    dots = base.mark_point(filled=True, size=5, opacity=0.3).properties(data=alt.Data(values=samples))
    return alt.layer(dots, curves, data=alt.Data(values=lines)).properties(width=330, height=190, title=title)


def _client(client: int) -> str:
    return f"client {client}"


def barrier_charts(settings: Sequence[Setting]) -> list[Chart]:
    """Draw FedAvg's client-server barriers against FedFish's, as in the last panel of the paper's Figure 2.

    There is a chart for each number of local epochs and a point for each overlap and seed. Above the diagonal FedFish's
    barrier is the lower one.
    """
    return [
        _barrier_chart(epochs, own) for epochs, own in sorted(gather(settings, lambda one: one.local_epochs).items())
    ]


def _barrier_chart(epochs: int, settings: Sequence[Setting]) -> Chart:
    points = [
        {"method": overlap_name(one.overlap), "fedavg": fedavg, "fedfish": fedfish}
        for one in settings
        for fedavg, fedfish in zip(*(one.methods[method].values("barrier") for method in METHODS), strict=True)
    ]
    drawn = [0.0, *(point[method] for point in points for method in METHODS)]
    names = list(dict.fromkeys(point["method"] for point in points))
    x, y = (alt.X("fedfish:Q", title="barrier of FedFish"), alt.Y("fedavg:Q", title="barrier of FedAvg"))
    ends = [{"fedavg": end, "fedfish": end} for end in (min(drawn), max(drawn))]
    diagonal = alt.Chart(alt.Data(values=ends)).mark_line(color=GREY).encode(x=x, y=y)
    dots = (
        alt.Chart(alt.Data(values=points))
        .mark_point(filled=True, size=30, opacity=1)
        .encode(x=x, y=y, color=alt.Color("method:N", scale=alt.Scale(domain=names, range=COLOURS[: len(names)])))
    )
    return alt.layer(diagonal, dots).properties(width=330, height=260, title=plural(epochs, "local epoch"))


_SAID = {-1: "FedFish", 1: "FedAvg", 0: "neither", None: "a single seed"}


def report_files(rows: Sequence[FedFishToyRow], page: PageData) -> dict[str, bytes]:
    """Make the page of at least one federation; see `Experiment.files`."""
    settings, drawn = settings_of(rows), [Drawn(**one) for one in page.shown.get("drawn", ())]
    html = render(
        "fedfish_toy.html.j2",
        page,
        findings=findings_of(settings),
        functions=[to_html(chart) for chart in function_charts(drawn)],
        barriers=[to_html(chart) for chart in barrier_charts(settings)],
        results=[(one, overlap_name(one.overlap), _measures(one), _differences(one)) for one in settings],
        methods=METHODS,
        labels=LABELS,
        seeds=sorted({row.seed for row in rows}),
        level=LEVEL,
        intervals=2 * len(settings),
        domains=[(overlap_name(one.overlap), [interval_text(own) for own in one.intervals]) for one in drawn],
        artifacts={(overlap_name(row.overlap), row.seed): row.artifact for row in rows},
    )
    return {"index.html": html.encode()}


def shown_of(plan: FedFishToyPlan, outcome: Outcome) -> dict[str, Any]:
    """Choose what is drawn: for each overlap the first seed that did not fail, after the most local epochs."""
    grid = plan.settings.toy
    points = domain_points(grid.points)
    truth = _rounded(true_values(grid.function, points)[:, 0].tolist())
    chosen: dict[float, Artifact] = {}
    for job in plan.federations:
        if job.name in outcome.artifacts:
            chosen.setdefault(job.overlap, outcome.artifacts[job.name])
    drawn = []
    for overlap, artifact in chosen.items():
        measured = read_measured(artifact)
        epochs, last = grid.epochs[-1], measured.stages[-1]
        functions = {
            _TRUE: truth,
            **{LABELS[method]: _rounded(getattr(last, method).curve) for method in METHODS},
            **{_client(client): _rounded(curve) for client, curve in enumerate(last.local_curves)},
        }
        samples = [
            list(zip(_rounded(inputs), _rounded(targets), strict=True))
            for inputs, targets in zip(measured.inputs, measured.targets, strict=True)
        ]
        intervals = [interval_of(client, grid.clients, overlap) for client in range(grid.clients)]
        drawn.append(Drawn(overlap, intervals, samples, epochs, functions, _rounded(points[:, 0].tolist())))
    return {"drawn": [asdict(one) for one in drawn]}


def _rounded(values: Sequence[float]) -> list[float]:
    # A chart shows no more digits.
    return [round(value, 4) for value in values]


def _measures(setting: Setting) -> dict[str, dict[str, str]]:
    fields = ("global_error", "best_fitted", "worst_fitted", "barrier", "local_error")
    return {
        method: {field: number(setting.methods[method].measure(field).mean) for field in fields} for method in METHODS
    }


def _differences(setting: Setting) -> list[tuple[str, str, int, str]]:
    return [
        (number(one.paired.mean), interval_text(one.interval), one.lower, _SAID[one.sign])
        for one in (setting.global_error, setting.barrier)
    ]


_METRICS = ("global_error", "barrier", "local_error", "best_fitted", "worst_fitted")


def make_runs(plan: FedFishToyPlan, outcome: Outcome, rows: Sequence[FedFishToyRow]) -> Runs:
    """List one run for every method, overlap and seed, and one with means over seeds for every method and overlap.

    MLflow's steps are the numbers of local epochs. See `Experiment.runs`.
    """
    # What all runs share.
    shared = plan.settings.toy.model_dump(mode="json", exclude={"overlaps", "epochs", "seeds"})
    params = {name: setting_value(value) for name, value in shared.items()}
    charts = cache(partial(_draw, plan, outcome, rows))
    return Runs(single=list(_seed_records(rows, params)), summary=list(_summary_records(rows, params, charts)))


def _seed_records(rows: Sequence[FedFishToyRow], params: Mapping[str, str]) -> Iterator[Record]:
    for (method, overlap, seed), own in gather(rows, lambda row: (row.method, row.overlap, row.seed)).items():
        yield Record(
            name=f"{method} overlap={overlap:g} s={seed}",
            params={**params, "method": method, "overlap": f"{overlap!r}", "seed": str(seed)},
            metrics={},
            tags={"artifact": own[0].artifact},
            series={metric: {row.local_epochs: getattr(row, metric) for row in own} for metric in _METRICS},
        )


def _summary_records(
    rows: Sequence[FedFishToyRow], params: Mapping[str, str], charts: Callable[[], Mapping[str, bytes]]
) -> Iterator[Record]:
    for overlap, settings in gather(settings_of(rows), lambda one: one.overlap).items():
        for method in METHODS:
            yield Record(
                name=f"{method} overlap={overlap:g}",
                params={**params, "method": method, "overlap": f"{overlap!r}"},
                metrics={},
                tags={"seeds": json.dumps(settings[0].seeds)},
                drawn_from=(digest([asdict(row) for row in rows]),),
                draw=charts,
                series=_series(method, settings),
            )


def _series(method: str, settings: Sequence[Setting]) -> dict[str, dict[int, float]]:
    """Means and deviations by metric and number of epochs."""
    found: dict[str, dict[int, float]] = {}
    for one in settings:
        for name, value in one.methods[method].means(_METRICS).items():
            found.setdefault(name, {})[one.local_epochs] = value
    return found


def _draw(plan: FedFishToyPlan, outcome: Outcome, rows: Sequence[FedFishToyRow]) -> dict[str, bytes]:
    drawn = [Drawn(**one) for one in shown_of(plan, outcome)["drawn"]]
    charts = {"functions": function_charts(drawn), "barriers": barrier_charts(settings_of(rows))}
    return {
        f"{name}-{number}.png": to_png(chart)
        for name, own in charts.items()
        for number, chart in enumerate(own, start=1)
    }
