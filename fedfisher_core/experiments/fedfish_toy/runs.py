"""The runs of the toy regression in MLflow."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial

from fedfisher_core.experiments.fedfish_toy.plan import FedFishToyPlan
from fedfisher_core.experiments.fedfish_toy.rows import METHODS, FedFishToyRow
from fedfisher_core.experiments.fedfish_toy.summary import Setting, settings_of
from fedfisher_core.reporting.formats import setting_value
from fedfisher_core.reporting.measure import gather
from fedfisher_core.reporting.runs import Record, Runs, digest
from fedfisher_core.walk import Outcome

_DPI = 80
_METRICS = ("global_error", "barrier", "local_error", "best_fitted", "worst_fitted")


def make_runs(plan: FedFishToyPlan, outcome: Outcome, rows: Sequence[FedFishToyRow]) -> Runs:
    """List one run for every method, overlap and seed, and one with the means over seeds for every method and overlap.

    MLflow's steps are the numbers of local epochs. See `Experiment.runs`.
    """
    # All that is the same in all runs.
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
    # Drawing is loaded where a run is new only.
    from fedfisher_core.experiments.fedfish_toy.page import draw_figures, drawn_of

    return draw_figures(rows, drawn_of(plan, outcome), plan.settings.toy.epochs, dpi=_DPI)
