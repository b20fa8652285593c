"""The report of a privacy attack: one HTML page, its charts and galleries, and its runs in MLflow."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfisher_core.engine.plan import Outcome
from fedfisher_core.engine.store import Artifact
from fedfisher_core.experiments.privacy_attack.attacker import private_images
from fedfisher_core.experiments.privacy_attack.jobs import best_images, prior_sample
from fedfisher_core.experiments.privacy_attack.plan import BOUNDS, AttackPlan
from fedfisher_core.experiments.privacy_attack.rows import AttackRow
from fedfisher_core.experiments.privacy_attack.summary import blocks, interval_over_trials, summarise
from fedfisher_core.federation.federation import PartitionInputs
from fedfisher_core.reporting.charts import (
    Chart,
    Dot,
    Point,
    Trade,
    dot_plot,
    line_chart,
    to_html,
    to_png,
    trade_off_chart,
)
from fedfisher_core.reporting.formats import in_words
from fedfisher_core.reporting.measure import Repeated, gather
from fedfisher_core.reporting.page import PageData, render
from fedfisher_core.reporting.pictures import Gallery
from fedfisher_core.reporting.runs import Record, Runs, as_parameters, digest

_WITHOUT = "none"

# The most images of each label in a gallery, and of one attack's picture.
_SHOWN = 4
_ALL = 16
_MEASURES = ("attack_accuracy", "mean_attack_accuracy", "feature_distance", "accuracy", "evaluator_accuracy")
_METRICS = (*_MEASURES, "upload_bits", "download_bits", "attack_seconds", "gan_seconds")
_LEAST_TRADES = 3
_SHARED = {"threat", "evaluator", "gan", "inversion", "privacy"}


def case_chart(rows: Sequence[AttackRow]) -> Chart:
    """Draw the mean attack accuracy of each method, with its 95 % interval over target labels and seeds.

    Args:
        rows: of one data set, network and privacy budget, with the floors and ceilings.
    """
    dots = []
    for one in summarise(rows):
        mean = one.measure("attack_accuracy").mean
        low, high = interval_over_trials(one) or (None, None)
        dots.append(
            Dot(
                method=f"{one.row.attack} {one.row.case}",
                name=in_words(one.row.attack),
                mean=100 * mean,
                low=None if low is None else 100 * max(low, 0.0),
                high=None if high is None else 100 * min(high, 1.0),
                group="Without any upload" if one.row.reference else "Attacked",
            )
        )
    dots.sort(key=lambda dot: (dot.group, -dot.mean))
    return dot_plot(dots, "recognised, %")


def front_chart(rows: Sequence[AttackRow]) -> Chart | None:
    """Draw the accuracy of each method's network against what its strongest attack recognises.

    Points are means over target labels and seeds. Those that no other beats in both are joined. Ensembles are left out.

    Args:
        rows: of one data set and network, at any budgets of differential privacy.

    Returns:
        The chart; None for fewer than three methods and budgets.
    """
    networks = gather(
        summarise([row for row in rows if not _is_ensemble(row)]), lambda one: (one.row.method, one.row.epsilon)
    )
    trades = [
        Trade(
            method=f"{label} {epsilon}",
            name=in_words(label) + ("" if epsilon is None else f", ε = {epsilon:g}"),
            cost=100 * max(one.measure("attack_accuracy").mean for one in attacks),
            gain=100 * attacks[0].measure("accuracy").mean,
        )
        for (label, epsilon), attacks in networks.items()
    ]
    axes = ("recognised, %", "test accuracy of the model, %")
    return trade_off_chart(trades, axes=axes, logarithmic_cost=False) if len(trades) >= _LEAST_TRADES else None


def _is_ensemble(row: AttackRow) -> bool:
    return str(row.method_settings.get("method", row.method)).startswith("ensemble")


def budget_charts(rows: Sequence[AttackRow]) -> list[Chart]:
    """Draw the methods' accuracy and the attack's against the budget of differential privacy.

    Points are means over target labels and seeds, bars standard deviations.

    Args:
        rows: of one data set and network, at several budgets.
    """
    # Rows without a budget stand at the right.
    summaries = sorted(
        summarise([row for row in rows if not row.reference]),
        key=lambda one: math.inf if one.row.epsilon is None else one.row.epsilon,
    )
    # All attacks through a method attack the same models, so their accuracy is drawn once.
    first = {one.row.method: one.row.attack for one in summaries[::-1]}
    models = [one for one in summaries if one.row.attack == first[one.row.method]]
    titles = {"accuracy": "test accuracy of the model, %", "attack_accuracy": "recognised images, %"}
    charts = []
    for field, own in (("accuracy", models), ("attack_accuracy", summaries)):
        points = []
        for one in own:
            measure, epsilon = one.measure(field), one.row.epsilon
            spread = measure.deviation or 0.0
            points.append(
                Point(
                    one.row.attack,
                    in_words(one.row.attack),
                    _WITHOUT if epsilon is None else f"{epsilon:g}",
                    100 * measure.mean,
                    100 * (measure.mean - spread),
                    100 * (measure.mean + spread),
                )
            )
        charts.append(line_chart(points, axes=("ε of each client", titles[field])))
    return charts


def shown_of(plan: AttackPlan, outcome: Outcome) -> dict[str, Any]:
    """Gather the reconstructed images that the page shows."""
    return {"galleries": [gallery.shown() for gallery in make_galleries(plan, outcome)]}


def make_galleries(plan: AttackPlan, outcome: Outcome) -> list[Gallery]:
    """Gather reconstructions, real images and images of the prior, for the first seed.

    Returns:
        One gallery a data set and network: a row a method, with its images of all target labels. A method that failed
        for a label is left out.
    """
    settings = plan.settings
    shown = min(_SHOWN, settings.inversion.images)
    first = [trial for trial in plan.trials if trial.federation.setting.seed == settings.seeds[0]]
    galleries = []
    for dataset, model in dict.fromkeys(
        (trial.federation.setting.dataset, trial.federation.setting.model) for trial in first
    ):
        chosen = [
            trial
            for trial in first
            if (trial.federation.setting.dataset, trial.federation.setting.model) == (dataset, model)
        ]
        rows: dict[str, list[Tensor]] = {}
        by_label = {trial.victim.target_label: trial for trial in chosen}
        for trial in by_label.values():
            partition = outcome.artifacts.get(trial.federations.partition(trial.federation).name)
            if partition is None:
                continue
            data = outcome.artifacts[trial.data.name]
            images = private_images(PartitionInputs(data, partition), trial.victim.target_label)
            rows.setdefault("the client's own images", []).append(images[:shown])
        for trial in chosen:
            for label, factors in trial.attacked:
                epsilon, title = trial.victim.epsilon, factors.after(label)
                name = title if epsilon is None else f"{title}, ε = {epsilon:g}"
                attack = outcome.artifacts.get(trial.attack(label, factors).name)
                if attack is not None:
                    rows.setdefault(name, []).append(best_images(attack))
        for trial in by_label.values():
            bounds = outcome.artifacts.get(trial.bounds.name)
            if bounds is not None:
                rows.setdefault(BOUNDS["prior"], []).append(prior_sample(bounds))
        rows = {name: images for name, images in rows.items() if len(images) == len(by_label)}
        if not rows:
            continue
        labels = ", ".join(map(str, settings.threat.target_labels))
        galleries.append(
            Gallery(
                title=f"{dataset}, {model}: labels {labels} (seed {settings.seeds[0]})",
                rows=tuple(rows),
                images=np.stack([_side_by_side(images, count=shown) for images in rows.values()]),
            )
        )
    return galleries


def make_picture(artifact: Artifact) -> Gallery:
    """Gather the images of an attack's best restart in a gallery of one row."""
    images = _side_by_side([best_images(artifact)], count=_ALL)[None]
    return Gallery(title="", rows=("best restart",), images=images)


def _side_by_side(sets: Sequence[Tensor], *, count: int) -> NDArray[np.floating]:
    """The first images of each set, as numbers between 0 and 1."""
    return torch.cat([images[:count] for images in sets]).numpy() / 255


def report_files(rows: Sequence[AttackRow], page: PageData) -> dict[str, bytes]:
    """Make the page of at least one row; see `Experiment.files`."""
    html = render(
        "privacy_attack.html.j2",
        page,
        blocks=[(block, to_html(case_chart(block.rows))) for block in blocks(rows)],
        fronts=[(title, to_html(chart)) for title, own in _networks(rows) if (chart := front_chart(own)) is not None],
        budgets=[(title, map(to_html, budget_charts(own))) for title, own in _networks_with_budgets(rows)],
        galleries=page.shown.get("galleries", ()),
        rows=rows,
        labels=sorted({row.target_label for row in rows}),
        seeds=sorted({row.seed for row in rows}),
    )
    return {"index.html": html.encode()}


def _networks(rows: Sequence[AttackRow]) -> list[tuple[str, list[AttackRow]]]:
    """Gather rows by data set and network, without floors and ceilings."""
    attacks = [row for row in rows if not row.reference]
    return list(gather(attacks, lambda row: f"{row.dataset}, {row.model}").items())


def _networks_with_budgets(rows: Sequence[AttackRow]) -> list[tuple[str, list[AttackRow]]]:
    return [(title, own) for title, own in _networks(rows) if any(row.epsilon is not None for row in own)]


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
