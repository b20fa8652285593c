"""The report of a privacy attack: one HTML page, its pictures, and its runs in MLflow."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial

from fedfisher_core.engine.plan import Outcome
from fedfisher_core.engine.store import Artifact
from fedfisher_core.experiments.privacy_attack.figures import budget_charts, case_chart, make_galleries
from fedfisher_core.experiments.privacy_attack.plan import AttackPlan
from fedfisher_core.experiments.privacy_attack.rows import AttackRow
from fedfisher_core.experiments.privacy_attack.summary import blocks, summarise
from fedfisher_core.reporting.charts import to_html, to_png
from fedfisher_core.reporting.measure import Repeated, gather
from fedfisher_core.reporting.page import PageData, render
from fedfisher_core.reporting.runs import Record, Runs, as_parameters, digest


def report_files(rows: Sequence[AttackRow], page: PageData) -> dict[str, bytes]:
    """Make the page of at least one row; see `Experiment.files`."""
    html = render(
        "privacy_attack.html.j2",
        page,
        blocks=[(block, to_html(case_chart(block.rows))) for block in blocks(rows)],
        budgets=[(title, map(to_html, budget_charts(own))) for title, own in _networks_with_budgets(rows)],
        galleries=page.shown.get("galleries", ()),
        rows=rows,
        labels=sorted({row.target_label for row in rows}),
        seeds=sorted({row.seed for row in rows}),
    )
    return {"index.html": html.encode()}


def _networks_with_budgets(rows: Sequence[AttackRow]) -> list[tuple[str, list[AttackRow]]]:
    """Gather rows by data set and network, where some have differential privacy."""
    attacks = [row for row in rows if not row.reference]
    groups = gather(attacks, lambda row: f"{row.dataset}, {row.model}")
    return [(title, own) for title, own in groups.items() if any(row.epsilon is not None for row in own)]


_MEASURES = ("attack_accuracy", "mean_attack_accuracy", "feature_distance", "accuracy", "evaluator_accuracy")
_METRICS = (*_MEASURES, "upload_bits", "download_bits", "attack_seconds", "gan_seconds")
_SHARED = {"threat", "evaluator", "gan", "inversion", "privacy"}


def make_runs(plan: AttackPlan, outcome: Outcome, rows: Sequence[AttackRow]) -> Runs:
    """List one run for every row, and one summary run for every method and budget; see `Experiment.runs`."""
    made = [outcome.artifacts.get(trial.attack(*attack).name) for trial in plan.trials for attack in trial.attacked]
    attacks = {artifact.key: artifact for artifact in made if artifact is not None}
    return Runs(single=list(_trial_records(plan, rows, attacks)), summary=list(_summary_records(plan, outcome, rows)))


def _trial_records(plan: AttackPlan, rows: Sequence[AttackRow], attacks: Mapping[str, Artifact]) -> Iterator[Record]:
    for row in rows:
        yield Record(
            name=f"{_name(row)} label={row.target_label} s={row.seed}",
            params=_params(row) | {"target_label": str(row.target_label), "seed": str(row.seed)},
            metrics=Repeated([row]).means(_METRICS),
            tags=_tags(row) | {"artifact": row.artifact, "method_settings": json.dumps(row.method_settings)},
            drawn_from=(row.artifact,),
            draw=partial(_picture, attacks.get(row.artifact)),
            settings=_settings(plan, row),
        )


def _picture(attack: Artifact | None) -> dict[str, bytes]:
    # Only a new run loads what draws.
    from fedfisher_core.experiments.privacy_attack.figures import make_picture

    return {} if attack is None else {"reconstructions.png": make_picture(attack).png()}


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
            settings=_settings(plan, summary.row),
        )


def _charts(plan: AttackPlan, outcome: Outcome, rows: Sequence[AttackRow]) -> dict[str, bytes]:
    charts = {
        f"reconstructions-{number}.png": gallery.png()
        for number, gallery in enumerate(make_galleries(plan, outcome), start=1)
    }
    found = [block.attacks[0] for block in blocks(rows)]
    if len(found) == 1:
        charts["attack_accuracy.png"] = to_png(case_chart(rows))
    elif len({(row.dataset, row.model) for row in found}) == 1:
        for name, chart in zip(("accuracy", "attack_accuracy"), budget_charts(rows), strict=True):
            charts[f"{name}_by_epsilon.png"] = to_png(chart)
    return charts


def _settings(plan: AttackPlan, row: AttackRow) -> dict[str, str]:
    """Each setting of training, privacy, attack and method as a separate parameter."""
    settings = plan.settings
    training = as_parameters(settings.train.model_dump(mode="json", exclude={"objective"}))
    # The row has its own epsilon. A row without one needs no other setting of privacy.
    included = _SHARED - ({"privacy"} if row.epsilon is None else set())
    dumped = settings.model_dump(mode="json", include=included, exclude={"privacy": {"epsilon"}}, exclude_none=True)
    shared = as_parameters(dumped)
    method = {"method.name" if name == "method" else name: value for name, value in row.method_settings.items()}
    taken = {*_params(row), *training, "target_label", "seed"}
    return shared | training | as_parameters(method, within="method", taken=taken)


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
        # Parameters identify a run, so runs without a choice of factors have no such parameter.
        **({} if row.factors is None else {"factors": row.factors.value}),
    }


def _tags(row: AttackRow) -> dict[str, str]:
    return {"case": row.case, "reference": str(row.reference).lower()}
