"""The plan of a privacy attack, and what it measured: train federations, then attack one client of each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedfisher_core.client.objectives.objective import configure_objective
from fedfisher_core.client.statistics.statistic import ServerView
from fedfisher_core.data.counting import count_training
from fedfisher_core.data.layouts import require_images
from fedfisher_core.data.sources import find_source
from fedfisher_core.data.specs import datasets
from fedfisher_core.engine.errors import InputError, UnsupportedLayerError
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.plan import Outcome
from fedfisher_core.engine.store import read_document, read_timings
from fedfisher_core.experiments.contract import Plan
from fedfisher_core.experiments.privacy_attack.attacker import MEASURES, TARGET_CLIENT, TrainJudge, TrainPrior
from fedfisher_core.experiments.privacy_attack.jobs import (
    AttackClient,
    AttackInputs,
    BoundInputs,
    MeasureBounds,
    read_attack,
    read_bounds,
)
from fedfisher_core.experiments.privacy_attack.rows import PRIOR_ALONE, AttackRow
from fedfisher_core.experiments.privacy_attack.settings import AttackSettings, Victim
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.federation import DataInputs, Federation, PartitionInputs
from fedfisher_core.federation.global_models import read_result
from fedfisher_core.federation.jobs import Federations
from fedfisher_core.federation.testing import read_measures
from fedfisher_core.federation.uploads import schema_of
from fedfisher_core.fisher.capture import require_rows, trace
from fedfisher_core.fisher.layers import matrix_layers
from fedfisher_core.methods.configured import ConfiguredMethod
from fedfisher_core.privacy.attack.cases import Case, cases_of
from fedfisher_core.privacy.attack.factors import Factors
from fedfisher_core.privacy.attack.gan import require_size

_LEAST_CLASSES = 4

BOUNDS = {"uniform": "noise", "prior": "GAN without inversion", "real": "real test images"}
"""What floors and ceiling are measured on, by the field of `References`."""
_BOUND_CASES = {"uniform": "floor: nothing", "prior": PRIOR_ALONE, "real": "ceiling"}


@dataclass(frozen=True)
class Trial:
    """One target label in one federation.

    Args:
        cases: what each method lets the server see, by its label and by the Kronecker factors that are compared.
        host: the first federation with the same data set, target label and seed, which all trials share.
    """

    settings: AttackSettings
    victim: Victim
    federations: Federations
    federation: Federation
    cases: Mapping[str, Mapping[Factors, Case]]
    host: Federation

    @property
    def attacked(self) -> list[tuple[str, Factors]]:
        """Each attack: the label of its method, and the Kronecker factors that are compared."""
        return [(label, factors) for label, cases in self.cases.items() for factors in cases]

    @property
    def data(self) -> Job[Any]:
        """The job that makes the examples."""
        return self.federations.data(self.federation)

    @property
    def judge(self) -> TrainJudge:
        """The job that trains the evaluator."""
        name, numerics = f"evaluator of {self.federation.setting.dataset}", self.federation.numerics
        return TrainJudge(self.settings, name=name, needs=DataInputs(self.data), numerics=numerics)

    @property
    def prior(self) -> TrainPrior:
        """The job that trains the attacker's GAN."""
        label, host = self.victim.target_label, self.host
        name = f"GAN without label {label}: {host.setting.dataset} seed={host.setting.seed}"
        return TrainPrior(self.settings, host, label, name=name, needs=self._needs, numerics=host.numerics)

    @property
    def bounds(self) -> MeasureBounds:
        """The job that measures floors and ceiling."""
        label, host = self.victim.target_label, self.host
        name = f"floors and ceiling of label {label}: {host.setting.dataset} seed={host.setting.seed}"
        needs = BoundInputs(**vars(self._needs), prior=self.prior, judge=self.judge)
        return MeasureBounds(self.settings, host, label, name=name, needs=needs, numerics=host.numerics)

    def attack(self, label: str, factors: Factors = Factors.ALL) -> AttackClient:
        """The job that attacks through a method."""
        configured, case, federations = self.federations.methods[label], self.cases[label][factors], self.federations
        target, federation = self.victim.target_label, self.federation
        # A label may be any text, so the factors stand before it, where they can't be taken for a part of it.
        through = "" if factors is Factors.ALL else f" through {factors}"
        name = f"attack on label {target}{through} by {label} of {federation.label}"
        needs = AttackInputs(
            data=self.data,
            partition=federations.partition(federation),
            prior=self.prior,
            judge=self.judge,
            # The attack on a secure sum computes the sum from the uploads.
            payloads={one: federations.sending(federation, one, configured) for one in self._seen(configured, case)},
        )
        schema = schema_of(configured, federation.spec)
        return AttackClient(
            self.settings,
            federation,
            target,
            configured,
            schema,
            case,
            name=name,
            needs=needs,
            numerics=federation.numerics,
        )

    def jobs(self) -> Iterator[Job[Any]]:
        """List the attacker's jobs; other trials share some of them."""
        yield from (self.judge, self.prior, self.bounds)
        for label, factors in self.attacked:
            yield self.attack(label, factors)

    @property
    def _needs(self) -> PartitionInputs[Job[Any]]:
        return PartitionInputs(self.data, self.federations.partition(self.host))

    def _seen(self, configured: ConfiguredMethod, case: Case) -> Sequence[int]:
        """The clients whose uploads decide what the server sees."""
        summed = any(view is ServerView.SUM for view in case.views.values())
        return self.federations.members(self.federation, configured) if summed else (TARGET_CLIENT,)


@dataclass(frozen=True)
class AttackPlan(Plan):
    """The work of a privacy attack."""

    settings: AttackSettings
    trials: tuple[Trial, ...]


def make_plan(settings: AttackSettings) -> AttackPlan:
    """Check everything that can be checked without work, and list the jobs.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    for dataset in settings.data.dataset:
        _require_attackable(dataset, settings)
    trials: list[Trial] = []
    hosts: dict[tuple[str, int, int], Federation] = {}
    jobs: list[Job[Any]] = []
    _require_batch(settings)
    if (ranks := settings.model.lora.ranks) is not None:
        raise InputError(f"model.lora.ranks={list(ranks)} with an attack; allowed: one rank")
    _require_uploads_alone(settings)
    for victim in settings.victims():
        federations = check_federations(victim.settings, title=victim.title)
        _require_whole_sums(federations.methods)
        cases = {label: _cases(label, configured, settings) for label, configured in federations.methods.items()}
        each = [case for chosen in cases.values() for case in chosen.values()]
        if settings.fisher.estimator == "empirical" and any(case.statistics for case in each):
            raise InputError(
                "fisher.estimator='empirical' needs labels, which reconstructed images have not; allowed with attacks "
                "on Fishers: auto, exact, monte_carlo, truncated"
            )
        if settings.fisher.weight_sharing != "expand" and any(case.statistics for case in each):
            raise InputError(
                f"fisher.weight_sharing={settings.fisher.weight_sharing!r}; allowed with attacks on Fishers: expand"
            )
        for federation in federations.all:
            require_images(federation.dataset.inputs, f"an attack on model.name={federation.setting.model!r}")
            _require_layers(federations.methods_of(federation), federation)
            _require_factors(each, federation)
            host = hosts.setdefault(
                (federation.setting.dataset, victim.target_label, federation.setting.seed), federation
            )
            trials.append(Trial(settings, victim, federations, federation, cases, host))
            jobs += trials[-1].jobs()
        jobs += federations.jobs()
    return AttackPlan(jobs=jobs, settings=settings, trials=tuple(trials))


def _require_uploads_alone(settings: AttackSettings) -> None:
    """Refuse objectives whose reports tell the server more than the uploads that are attacked."""
    for label in settings.train.objective:
        if configure_objective(label, settings.train.objective).objective.exchange is not None:
            raise InputError(
                f"train.objective={label!r} sends reports, which the attack does not look at; allowed: objectives "
                "without reports"
            )


def _require_whole_sums(methods: Mapping[str, ConfiguredMethod]) -> None:
    """Refuse sums that lack clients, as the attack is on the sum of all."""
    for label, configured in methods.items():
        dropouts = configured.wire.secure.dropouts
        if configured.summation is not None and dropouts:
            raise InputError(
                f"method {label!r}: wire.secure.dropouts={dict(dropouts)} with an attack, which is on the sum of all "
                "clients; allowed: no drop-outs"
            )


def _require_attackable(dataset: str, settings: AttackSettings) -> None:
    spec = datasets.get(dataset)
    require_size(spec.inputs)
    if spec.classes < _LEAST_CLASSES:
        raise InputError(f"data.dataset={dataset!r} has {spec.classes} classes; allowed: at least {_LEAST_CLASSES}")
    for label in settings.threat.target_labels:
        if label >= spec.classes:
            raise InputError(
                f"threat.target_labels={list(settings.threat.target_labels)}: {dataset} has no label {label}; allowed: "
                f"0 to {spec.classes - 1}"
            )
    _require_images(dataset, settings)


def _require_images(dataset: str, settings: AttackSettings) -> None:
    """Check that there are enough images for the attacker and the evaluator, where they can be counted."""
    counted = count_training(find_source(dataset))
    if counted is None:
        return
    images, threat = int(counted.labels.sum()), settings.threat
    if settings.evaluator.batch_size > images:
        raise InputError(
            f"evaluator.batch_size={settings.evaluator.batch_size}, but {dataset} has {images} training images; "
            f"allowed: at most as many"
        )
    for label in threat.target_labels:
        # Only the split decides which of them the chosen clients hold.
        left = images - int(counted.labels[label]) - threat.extra_images
        if threat.auxiliary_images > left:
            raise InputError(
                f"threat.auxiliary_images={threat.auxiliary_images}, but {dataset} leaves {max(left, 0)} images to the "
                f"clients that are not attacked through label {label}; allowed: at most as many"
            )


def _require_batch(settings: AttackSettings) -> None:
    """Check that the attacker's images fill a batch."""
    if settings.gan.batch_size > settings.threat.auxiliary_images:
        raise InputError(
            f"gan.batch_size={settings.gan.batch_size} with threat.auxiliary_images="
            f"{settings.threat.auxiliary_images}; allowed: at most as many"
        )


def _require_layers(methods: Mapping[str, ConfiguredMethod], federation: Federation) -> None:
    """Check that the Fishers that clients send can be computed on reconstructed images."""
    for label, configured in methods.items():
        if any(one.statistic.approximation for one in configured.uploads):
            network = federation.spec.skeleton().eval()
            try:
                layers = matrix_layers(network)
                require_rows(layers, trace(network, layers, federation.spec.inputs.zeros(1).to("meta")))
            except UnsupportedLayerError as error:
                raise InputError(f"method {label!r} can't be attacked: {error}") from error


def _require_factors(cases: Sequence[Case], federation: Federation) -> None:
    """Check that the network has the chosen Kronecker factors."""
    chosen = {case.factors for case in cases} - {Factors.ALL}
    layers = len(matrix_layers(federation.spec.skeleton())) if chosen else 0
    for factors in sorted(chosen):
        factors.require_layers(layers)


def _cases(label: str, configured: ConfiguredMethod, settings: AttackSettings) -> dict[Factors, Case]:
    if configured.method.pooled:
        raise InputError(
            f"method {label!r} can't be attacked: it trains on all data in one place, and no server aggregates; "
            f"allowed: methods with uploads"
        )
    compressed = configured.wire.budget != "none" and configured.wire.format != "float32"
    return cases_of(label, configured.method.views, compressed=compressed, factors=settings.inversion.factors)


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
