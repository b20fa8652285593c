"""Pictures of what was reconstructed, beside real images and the prior's own."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfisher_core.experiments.attack.attacker import private_images
from fedfisher_core.experiments.attack.jobs import best_images, prior_sample
from fedfisher_core.experiments.attack.plan import AttackPlan
from fedfisher_core.experiments.attack.results import BOUNDS
from fedfisher_core.federation.inputs import PartitionInputs
from fedfisher_core.reporting.gallery import Gallery
from fedfisher_core.store import Artifact
from fedfisher_core.walk import Outcome

# Most images of each label in a gallery, and in the picture of one attack.
_SHOWN = 4
_ALL = 16


def make_galleries(plan: AttackPlan, outcome: Outcome) -> list[Gallery]:
    """Gather reconstructions beside real images and images of the prior, for the first seed.

    Args:
        plan: the experiment.
        outcome: of its jobs.

    Returns:
        One gallery a data set and network: a row a method, and its images of one target label after the other. What
        failed for one of the labels is left out.
    """
    settings = plan.settings
    shown = min(_SHOWN, settings.inversion.images)
    first = [trial for trial in plan.trials if trial.place.cell.seed == settings.seeds[0]]
    galleries = []
    for dataset, model in dict.fromkeys((trial.place.cell.dataset, trial.place.cell.model) for trial in first):
        chosen = [trial for trial in first if (trial.place.cell.dataset, trial.place.cell.model) == (dataset, model)]
        rows: dict[str, list[Tensor]] = {}
        by_label = {trial.victim.target_label: trial for trial in chosen}
        for trial in by_label.values():
            partition = outcome.artifacts.get(trial.federations.partition(trial.place).name)
            if partition is None:
                continue
            data = outcome.artifacts[trial.data]
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
    """Gather an attack's best restart.

    Args:
        artifact: made by `AttackClient`.

    Returns:
        A gallery of one row.
    """
    images = _side_by_side([best_images(artifact)], count=_ALL)[None]
    return Gallery(title="", rows=("best restart",), images=images)


def _side_by_side(sets: Sequence[Tensor], *, count: int) -> NDArray[np.floating]:
    """The first images of each set, as numbers between 0 and 1."""
    return torch.cat([images[:count] for images in sets]).numpy() / 255
