"""Charts of a privacy attack by method and by budget, and galleries of reconstructed images."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfisher_core.engine.plan import Outcome
from fedfisher_core.engine.store import Artifact
from fedfisher_core.experiments.privacy_attack.attacker import private_images
from fedfisher_core.experiments.privacy_attack.jobs import best_images, prior_sample
from fedfisher_core.experiments.privacy_attack.plan import AttackPlan
from fedfisher_core.experiments.privacy_attack.results import BOUNDS
from fedfisher_core.experiments.privacy_attack.rows import AttackRow
from fedfisher_core.experiments.privacy_attack.summary import interval_over_trials, summarise
from fedfisher_core.federation.inputs import PartitionInputs
from fedfisher_core.reporting.charts import Chart, Dot, Point, dot_plot, line_chart
from fedfisher_core.reporting.names import in_words
from fedfisher_core.reporting.pictures import Gallery

_WITHOUT = "none"


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


# The most images of each label in a gallery, and of one attack's picture.
_SHOWN = 4
_ALL = 16


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
