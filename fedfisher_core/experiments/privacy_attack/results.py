"""What a privacy attack measured, as rows."""

from typing import Any

from fedfisher_core.engine.plan import Outcome
from fedfisher_core.engine.store import read_document, read_timings
from fedfisher_core.experiments.privacy_attack.attacker import MEASURES
from fedfisher_core.experiments.privacy_attack.jobs import read_attack, read_bounds
from fedfisher_core.experiments.privacy_attack.plan import AttackPlan, Trial
from fedfisher_core.experiments.privacy_attack.rows import AttackRow
from fedfisher_core.federation.global_models import read_result
from fedfisher_core.federation.testing import read_measures
from fedfisher_core.privacy.attack.factors import Factors

BOUNDS = {"uniform": "noise", "prior": "GAN without inversion", "real": "real test images"}
"""What floors and ceiling are measured on, by the field of `References`."""

_BOUND_CASES = {"uniform": "floor: nothing", "prior": "floor: auxiliary images", "real": "ceiling"}


def make_rows(plan: AttackPlan, outcome: Outcome) -> list[AttackRow]:
    """Gather what was measured of every method in every trial, and the floors and ceilings, where nothing failed."""
    made = [
        (trial, label, factors)
        for trial in plan.trials
        for label, factors in trial.attacked
        if _is_made(trial, label, factors, outcome)
    ]
    attacks = [_row(trial, label, factors, outcome) for trial, label, factors in made]
    return attacks + _bound_rows(plan, outcome)


def _is_made(trial: Trial, label: str, factors: Factors, outcome: Outcome) -> bool:
    *_, tested = trial.federations.names_of_tests(trial.federation, label)
    return trial.attack(label, factors).name in outcome.artifacts and tested in outcome.artifacts


def _row(trial: Trial, label: str, factors: Factors, outcome: Outcome) -> AttackRow:
    artifact = outcome.artifacts[trial.attack(label, factors).name]
    measures = read_attack(artifact)
    traffic = read_result(outcome.artifacts[trial.federations.aggregation(trial.federation, label).name]).traffic
    tested = read_measures(outcome.artifacts[trial.federations.names_of_tests(trial.federation, label)[-1]])
    return AttackRow(
        model=trial.federation.setting.model,
        epsilon=trial.victim.epsilon,
        method=label,
        method_settings=trial.federations.methods[label].described(),
        case=trial.cases[label][factors].name,
        attack_accuracy=measures.best.accuracy,
        mean_attack_accuracy=measures.mean_accuracy,
        feature_distance=measures.best.feature_distance,
        accuracy=tested.accuracy,
        upload_bits=traffic.upload_bits,
        download_bits=traffic.download_bits,
        attack_seconds=read_timings(artifact)["seconds"],
        reference=False,
        artifact=artifact.key,
        factors=None if factors is Factors.ALL else factors,
        **_common(trial, outcome),
    )


def _bound_rows(plan: AttackPlan, outcome: Outcome) -> list[AttackRow]:
    """Gather the floors and ceilings, one of each for each data set, label and seed."""
    shared = {trial.bounds.name: trial for trial in plan.trials if trial.bounds.name in outcome.artifacts}
    rows = []
    for name, label in BOUNDS.items():
        for job, trial in shared.items():
            measures = getattr(read_bounds(outcome.artifacts[job]), name)
            rows.append(
                AttackRow(
                    model="",
                    epsilon=None,
                    method=label,
                    method_settings={},
                    case=_BOUND_CASES[name],
                    attack_accuracy=measures.accuracy,
                    mean_attack_accuracy=measures.accuracy,
                    feature_distance=measures.feature_distance,
                    accuracy=None,
                    upload_bits=None,
                    attack_seconds=None,
                    reference=True,
                    artifact=outcome.artifacts[job].key,
                    **_common(trial, outcome),
                )
            )
    return rows


def _common(trial: Trial, outcome: Outcome) -> dict[str, Any]:
    settings = trial.settings
    return {
        "benchmark": settings.name,
        "experiment": "privacy_attack",
        "dataset": trial.federation.setting.dataset,
        "num_clients": settings.threat.clients,
        "alpha": settings.threat.alpha,
        "target_label": trial.victim.target_label,
        "seed": trial.federation.setting.seed,
        "gan_seconds": read_timings(outcome.artifacts[trial.prior.name])["seconds"],
        "evaluator_accuracy": read_document(outcome.artifacts[trial.judge.name], MEASURES)["test_accuracy"],
    }
