"""The runs of a privacy attack in MLflow."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial

from fedfisher_core.experiments.attack.plan import AttackPlan
from fedfisher_core.experiments.attack.rows import AttackRow
from fedfisher_core.experiments.attack.summary import blocks, summarise
from fedfisher_core.reporting.measure import Repeated
from fedfisher_core.reporting.runs import Record, Runs, digest
from fedfisher_core.store import Artifact
from fedfisher_core.walk import Outcome

_MEASURES = ("attack_accuracy", "mean_attack_accuracy", "feature_distance", "accuracy", "evaluator_accuracy")
_METRICS = (*_MEASURES, "upload_bits", "download_bits", "attack_seconds", "gan_seconds")
_DPI = 80


def make_runs(plan: AttackPlan, outcome: Outcome, rows: Sequence[AttackRow]) -> Runs:
    """List one run for every row, and one summary run for every method and budget; see `Experiment.runs`."""
    made = [outcome.artifacts.get(trial.attack(*attack).name) for trial in plan.trials for attack in trial.attacked]
    attacks = {artifact.key: artifact for artifact in made if artifact is not None}
    return Runs(single=list(_trial_records(rows, attacks)), summary=list(_summary_records(plan, outcome, rows)))


def _trial_records(rows: Sequence[AttackRow], attacks: Mapping[str, Artifact]) -> Iterator[Record]:
    for row in rows:
        yield Record(
            name=f"{_name(row)} label={row.target_label} s={row.seed}",
            params=_params(row) | {"target_label": str(row.target_label), "seed": str(row.seed)},
            metrics=Repeated([row]).means(_METRICS),
            tags=_tags(row) | {"artifact": row.artifact, "method_settings": json.dumps(row.method_settings)},
            drawn_from=(row.artifact,),
            draw=partial(_picture, attacks.get(row.artifact)),
        )


def _picture(attack: Artifact | None) -> dict[str, bytes]:
    # Drawing is loaded where a run is new only.
    from fedfisher_core.experiments.attack.galleries import make_picture
    from fedfisher_core.reporting.drawing import to_png
    from fedfisher_core.reporting.gallery import gallery_figure

    return {} if attack is None else {"reconstructions.png": to_png(gallery_figure(make_picture(attack)), dpi=_DPI)}


def _summary_records(plan: AttackPlan, outcome: Outcome, rows: Sequence[AttackRow]) -> Iterator[Record]:
    content = digest([asdict(row) for row in rows])
    charts = cache(partial(_charts, plan, outcome, rows))
    for summary in summarise(rows):
        yield Record(
            name=_name(summary.row),
            params=_params(summary.row),
            metrics=summary.means(_METRICS),
            tags=_tags(summary.row),
            drawn_from=(content,),
            draw=charts,
        )


def _charts(plan: AttackPlan, outcome: Outcome, rows: Sequence[AttackRow]) -> dict[str, bytes]:
    from fedfisher_core.experiments.attack.figures import budget_figure, case_figure
    from fedfisher_core.experiments.attack.galleries import make_galleries
    from fedfisher_core.reporting.drawing import to_png
    from fedfisher_core.reporting.gallery import gallery_figure

    charts = {
        f"reconstructions-{number}.png": to_png(gallery_figure(gallery), dpi=_DPI)
        for number, gallery in enumerate(make_galleries(plan, outcome), start=1)
    }
    found = [block.attacks[0] for block in blocks(rows)]
    if len(found) == 1:
        charts["attack_accuracy.png"] = to_png(case_figure(rows), dpi=_DPI)
    elif len({(row.dataset, row.model) for row in found}) == 1:
        charts["by_epsilon.png"] = to_png(budget_figure(rows), dpi=_DPI)
    return charts


def _name(row: AttackRow) -> str:
    return row.attack + ("" if row.epsilon is None else f" e={row.epsilon:g}")


def _params(row: AttackRow) -> dict[str, str]:
    return {
        "dataset": row.dataset,
        "model": row.model or "none",
        "alpha": f"{row.alpha:g}",
        "clients": str(row.num_clients),
        "epsilon": "none" if row.epsilon is None else f"{row.epsilon:g}",
        "method": row.method,
        # Runs without a choice keep the identity that they had before there was one.
        **({} if row.factors is None else {"factors": row.factors.value}),
    }


def _tags(row: AttackRow) -> dict[str, str]:
    return {"case": row.case, "reference": str(row.reference).lower()}
