"""What a privacy attack will do, checked before any work starts."""

from collections.abc import Mapping
from dataclasses import dataclass

from fedfisher_core.attack.cases import Case, case_of
from fedfisher_core.attack.experiment import Federation, PrivacyAttack
from fedfisher_core.attack.networks import require_size
from fedfisher_core.data.specs import datasets
from fedfisher_core.errors import InputError
from fedfisher_core.methods.binding import BoundMethod
from fedfisher_core.steps.attacker import AttackContext
from flows.plan import Plan, make_plan, require_own_name, require_places

_LEAST_CLASSES = 4


@dataclass(frozen=True)
class AttackedFederation:
    """Federations that differ in data set, network and seed only, and how they are attacked.

    Args:
        federation: the target label, the privacy budget and the settings.
        plan: of their training and aggregation.
        cases: what each method lets the server see, by its label.
    """

    federation: Federation
    plan: Plan
    cases: Mapping[str, Case]


@dataclass(frozen=True)
class AttackPlan:
    """The work of a privacy attack.

    Args:
        context: its settings and what follows from them.
        federations: what is trained and attacked.
    """

    context: AttackContext
    federations: tuple[AttackedFederation, ...]


def make_attack_plan(settings: PrivacyAttack) -> AttackPlan:
    """Check everything that can be checked without work.

    Args:
        settings: the experiment.

    Returns:
        Its plan.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    require_own_name(settings)
    for dataset in settings.data.dataset:
        _require_attackable(dataset, settings)
    context = AttackContext(settings)
    federations = tuple(_plan(federation) for federation in settings.federations())
    if settings.fisher.estimator == "empirical" and any(
        case.statistics for one in federations for case in one.cases.values()
    ):
        raise InputError(
            "fisher.estimator='empirical' needs labels, which reconstructed images have not; allowed with attacks on "
            "Fishers: exact, monte_carlo"
        )
    _ = context.device
    require_places(context, settings.tracking)
    return AttackPlan(context=context, federations=federations)


def _require_attackable(dataset: str, settings: PrivacyAttack) -> None:
    spec = datasets.get(dataset)
    if spec.classes < _LEAST_CLASSES:
        raise InputError(f"data.dataset={dataset!r} has {spec.classes} classes; allowed: at least {_LEAST_CLASSES}")
    require_size(spec.size)
    for label in settings.threat.target_labels:
        if label >= spec.classes:
            raise InputError(
                f"threat.target_labels={list(settings.threat.target_labels)}: {dataset} has no label {label}; allowed: "
                f"0 to {spec.classes - 1}"
            )


def _plan(federation: Federation) -> AttackedFederation:
    plan = make_plan(federation.settings)
    cases = {label: _case(label, bound) for label, bound in plan.methods.items()}
    return AttackedFederation(federation=federation, plan=plan, cases=cases)


def _case(label: str, bound: BoundMethod) -> Case:
    if bound.method.pooled:
        raise InputError(
            f"method {label!r} can't be attacked: it trains on all data in one place, and no server aggregates; "
            f"allowed: methods with uploads"
        )
    return case_of(label, bound.method.views, compressed=bound.wire.budget != "none" and bound.wire.format != "float32")
