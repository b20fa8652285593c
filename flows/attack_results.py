"""The results of a privacy attack: rows, and pictures of what was reconstructed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfisher_core.attack.figures import Gallery
from fedfisher_core.attack.rows import AttackRow
from fedfisher_core.steps.aggregation import read_result
from fedfisher_core.steps.attack import best_images, prior_sample, private_images, read_measures
from fedfisher_core.store import read_timings
from flows.attack_plan import AttackPlan
from flows.attack_work import Found, Trial, attack_key

BOUNDS = {"uniform": "noise", "prior": "GAN without inversion", "real": "real test images"}
"""What floors and ceiling are made of, by the name of their measures."""

_BOUND_CASES = {"uniform": "floor: nothing", "prior": "floor: auxiliary images", "real": "ceiling"}
# Most images of each label in a gallery, and in the picture of one attack.
_SHOWN = 4
_ALL = 16


def make_rows(plan: AttackPlan, trials: Sequence[Trial], found: Found) -> list[AttackRow]:
    """Gather what was measured of every method in every trial, and the floors and ceilings.

    Args:
        plan: the experiment.
        trials: what was attacked.
        found: what the attack's tasks made.

    Returns:
        The rows.
    """
    attacks = [_row(plan, trial, label, found) for trial in trials for label in trial.attacked.cases]
    return attacks + _bound_rows(plan, trials, found)


def _row(plan: AttackPlan, trial: Trial, label: str, found: Found) -> AttackRow:
    artifact = found.attacks[attack_key(plan, trial, label, found)]
    measures = read_measures(artifact)
    result = read_result(trial.work.aggregates[trial.cell][label])
    return AttackRow(
        model=trial.cell.model,
        epsilon=trial.attacked.federation.epsilon,
        method=label,
        method_settings=trial.attacked.plan.methods[label].described(),
        case=trial.attacked.cases[label].name,
        attack_accuracy=measures["best"]["accuracy"],
        mean_attack_accuracy=measures["mean_accuracy"],
        feature_distance=measures["best"]["feature_distance"],
        accuracy=result["measures"]["accuracy"],
        upload_bits=result["upload_bits"],
        attack_seconds=read_timings(artifact)["seconds"],
        reference=False,
        artifact=artifact.key,
        **_common(plan, trial, found),
    )


def _bound_rows(plan: AttackPlan, trials: Sequence[Trial], found: Found) -> list[AttackRow]:
    """Gather the floors and ceilings, one of each a data set, label and seed."""
    places = {trial.place: trial for trial in trials}
    rows = []
    for name, label in BOUNDS.items():
        for place, trial in places.items():
            measures = read_measures(found.bounds[place])[name]
            rows.append(
                AttackRow(
                    model="",
                    epsilon=None,
                    method=label,
                    method_settings={},
                    case=_BOUND_CASES[name],
                    attack_accuracy=measures["accuracy"],
                    mean_attack_accuracy=measures["accuracy"],
                    feature_distance=measures["feature_distance"],
                    accuracy=None,
                    upload_bits=None,
                    attack_seconds=None,
                    reference=True,
                    artifact=found.bounds[place].key,
                    **_common(plan, trial, found),
                )
            )
    return rows


def _common(plan: AttackPlan, trial: Trial, found: Found) -> dict[str, Any]:
    settings = plan.context.settings
    return {
        "benchmark": settings.name,
        "experiment": "privacy_attack",
        "dataset": trial.cell.dataset,
        "num_clients": settings.threat.clients,
        "alpha": settings.threat.alpha,
        "target_label": trial.target,
        "seed": trial.cell.seed,
        "gan_seconds": read_timings(found.priors[trial.place])["seconds"],
        "evaluator_accuracy": read_measures(found.judges[trial.cell.dataset])["test_accuracy"],
    }


def make_galleries(plan: AttackPlan, trials: Sequence[Trial], found: Found) -> list[Gallery]:
    """Gather reconstructions beside real images and images of the prior, for the first seed.

    Args:
        plan: the experiment.
        trials: what was attacked.
        found: what the attack's tasks made.

    Returns:
        One gallery a data set and network: a row a method, and its images of one target label after the other.
    """
    settings = plan.context.settings
    shown = min(_SHOWN, settings.inversion.images)
    first = [trial for trial in trials if trial.cell.seed == settings.seeds[0]]
    galleries = []
    for dataset, model in dict.fromkeys((trial.cell.dataset, trial.cell.model) for trial in first):
        chosen = [trial for trial in first if (trial.cell.dataset, trial.cell.model) == (dataset, model)]
        rows: dict[str, list[Tensor]] = {}
        for trial in {trial.target: trial for trial in chosen}.values():
            images = private_images(trial.data, trial.partition, trial.target, shown)
            rows.setdefault("the client's own images", []).append(images)
        for trial in chosen:
            for label in trial.attacked.cases:
                epsilon = trial.attacked.federation.epsilon
                name = label if epsilon is None else f"{label}, ε = {epsilon:g}"
                rows.setdefault(name, []).append(best_images(found.attacks[attack_key(plan, trial, label, found)]))
        for trial in {trial.target: trial for trial in chosen}.values():
            rows.setdefault(BOUNDS["prior"], []).append(prior_sample(found.bounds[trial.place]))
        labels = ", ".join(map(str, settings.threat.target_labels))
        galleries.append(
            Gallery(
                title=f"{dataset}, {model}: labels {labels} (seed {settings.seeds[0]})",
                rows=tuple(rows),
                images=np.stack([_side_by_side(images, count=shown) for images in rows.values()]),
            )
        )
    return galleries


def make_pictures(found: Found) -> dict[str, Gallery]:
    """Gather each attack's best restart.

    Args:
        found: what the attack's tasks made.

    Returns:
        A gallery of one row by the artifact's key.
    """
    return {
        artifact.key: Gallery(
            title="", rows=("best restart",), images=_side_by_side([best_images(artifact)], count=_ALL)[None]
        )
        for artifact in found.attacks.values()
    }


def _side_by_side(sets: Sequence[Tensor], *, count: int) -> NDArray[np.floating]:
    """The first images of each set, as numbers between 0 and 1."""
    return torch.cat([images[:count] for images in sets]).numpy() / 255
