"""The plan of a privacy attack: train the federations, then attack one client of each through every method."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedfisher_core.attack.cases import Case, cases_of
from fedfisher_core.attack.factors import Factors
from fedfisher_core.attack.networks import require_size
from fedfisher_core.client.statistic import ServerView
from fedfisher_core.data.counting import count_training
from fedfisher_core.data.sources import find_source
from fedfisher_core.data.specs import datasets
from fedfisher_core.errors import InputError, UnsupportedLayerError
from fedfisher_core.experiments.attack.attacker import TARGET_CLIENT, TrainJudge, TrainPrior
from fedfisher_core.experiments.attack.jobs import AttackClient, AttackInputs, BoundInputs, MeasureBounds
from fedfisher_core.experiments.attack.settings import AttackSettings, Victim
from fedfisher_core.experiments.contract import Plan
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.federation import Federations, schema_of, stages_of
from fedfisher_core.federation.inputs import DataInputs, PartitionInputs
from fedfisher_core.federation.place import Place
from fedfisher_core.fisher.layers import matrix_layers
from fedfisher_core.jobs import Job
from fedfisher_core.layouts import require_images
from fedfisher_core.methods.binding import BoundMethod

_LEAST_CLASSES = 4


@dataclass(frozen=True)
class Trial:
    """One target label in one federation.

    Args:
        settings: the experiment.
        victim: the target label and the privacy budget.
        federations: of this label and budget.
        place: the federation.
        cases: what each method lets the server see, by its label and by the Kronecker factors that are compared.
        host: the first federation of the same data set, target label and seed, which all trials share.
    """

    settings: AttackSettings
    victim: Victim
    federations: Federations
    place: Place
    cases: Mapping[str, Mapping[Factors, Case]]
    host: Place

    @property
    def attacked(self) -> list[tuple[str, Factors]]:
        """What the attacks are through: a method, by its label, and the Kronecker factors that are compared."""
        return [(label, factors) for label, cases in self.cases.items() for factors in cases]

    @property
    def data(self) -> str:
        """Name of the job that decodes the data."""
        return self.federations.data(self.place).name

    @property
    def judge(self) -> TrainJudge:
        """The job that trains the evaluator."""
        name, numerics = f"evaluator of {self.place.cell.dataset}", self.place.numerics
        return TrainJudge(self.settings, name=name, needs=DataInputs(self.data), numerics=numerics)

    @property
    def prior(self) -> TrainPrior:
        """The job that trains the attacker's GAN."""
        label, host = self.victim.target_label, self.host
        name = f"GAN without label {label}: {host.cell.dataset} seed={host.cell.seed}"
        return TrainPrior(self.settings, host, label, name=name, needs=self._needs, numerics=host.numerics)

    @property
    def bounds(self) -> MeasureBounds:
        """The job that measures floors and ceiling."""
        label, host = self.victim.target_label, self.host
        name = f"floors and ceiling of label {label}: {host.cell.dataset} seed={host.cell.seed}"
        needs = BoundInputs(**vars(self._needs), prior=self.prior.name, judge=self.judge.name)
        return MeasureBounds(self.settings, host, label, name=name, needs=needs, numerics=host.numerics)

    def attack(self, label: str, factors: Factors = Factors.ALL) -> AttackClient:
        """The job that attacks through a method."""
        bound, case, federations = self.federations.methods[label], self.cases[label][factors], self.federations
        target, place = self.victim.target_label, self.place
        # A label may be any text: what stands before it can't be taken for a part of it.
        through = "" if factors is Factors.ALL else f" through {factors}"
        name = f"attack on label {target}{through} by {label}: {place.label}"
        needs = AttackInputs(
            data=self.data,
            partition=federations.partition(place).name,
            prior=self.prior.name,
            judge=self.judge.name,
            payloads={one: federations.sending(place, one, bound).name for one in self._seen(bound, case)},
        )
        schema = schema_of(bound, place)
        return AttackClient(
            self.settings, place, target, bound, schema, case, name=name, needs=needs, numerics=place.numerics
        )

    def jobs(self) -> Iterator[Job[Any]]:
        """List the attacker's jobs, some of which other trials share."""
        yield from (self.judge, self.prior, self.bounds)
        for label, factors in self.attacked:
            bound, case = self.federations.methods[label], self.cases[label][factors]
            # Sums that were computed securely are attacked as what they are, from the uploads that they are of.
            yield from (self.federations.sending(self.place, client, bound) for client in self._seen(bound, case))
            yield self.attack(label, factors)

    @property
    def _needs(self) -> PartitionInputs[str]:
        return PartitionInputs(self.data, self.federations.partition(self.host).name)

    def _seen(self, bound: BoundMethod, case: Case) -> Sequence[int]:
        """The clients whose uploads decide what the server sees."""
        summed = any(view is ServerView.SUM for view in case.views.values())
        return self.federations.members(self.place, bound) if summed else (TARGET_CLIENT,)


@dataclass(frozen=True)
class AttackPlan(Plan):
    """The work of a privacy attack.

    Args:
        settings: the experiment.
        trials: what is attacked.
    """

    settings: AttackSettings
    trials: tuple[Trial, ...]


def make_plan(settings: AttackSettings) -> AttackPlan:
    """Check everything that can be checked without work.

    Args:
        settings: the experiment.

    Returns:
        Its plan.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    for dataset in settings.data.dataset:
        _require_attackable(dataset, settings)
    trials: list[Trial] = []
    hosts: dict[tuple[str, int, int], Place] = {}
    jobs: list[Job[Any]] = []
    stages: dict[str, list[str]] = {"clients": [], "aggregates": [], "attacks": []}
    _require_batch(settings)
    for victim in settings.victims():
        federations = check_federations(victim.settings, title=victim.title)
        cases = {label: _cases(label, bound, settings) for label, bound in federations.methods.items()}
        each = [case for chosen in cases.values() for case in chosen.values()]
        if settings.fisher.estimator == "empirical" and any(case.statistics for case in each):
            raise InputError(
                "fisher.estimator='empirical' needs labels, which reconstructed images have not; allowed with attacks "
                "on Fishers: exact, monte_carlo"
            )
        for place in federations.places:
            require_images(place.dataset.inputs, f"an attack on model.name={place.cell.model!r}")
            _require_layers(federations.methods_of(place), place)
            _require_factors(each, place)
            host = hosts.setdefault((place.cell.dataset, victim.target_label, place.cell.seed), place)
            trials.append(Trial(settings, victim, federations, place, cases, host))
            attacks = list(trials[-1].jobs())
            stages["attacks"] += [job.name for job in attacks]
            jobs += attacks
        of_federations = list(federations.jobs())
        jobs += of_federations
        for stage, names in stages_of(of_federations).items():
            stages[stage] += names
    return AttackPlan(jobs=jobs, stages=stages, settings=settings, trials=tuple(trials))


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
    """Check that there are as many images as the attacker and the evaluator take, where they can be counted."""
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
        # Which of them the chosen clients hold is known once the data is split.
        left = images - int(counted.labels[label]) - threat.extra_images
        if threat.auxiliary_images > left:
            raise InputError(
                f"threat.auxiliary_images={threat.auxiliary_images}, but {dataset} leaves {max(left, 0)} images to the "
                f"clients that are not attacked through label {label}; allowed: at most as many"
            )


def _require_batch(settings: AttackSettings) -> None:
    """Check that the attacker's images make a batch."""
    if settings.gan.batch_size > settings.threat.auxiliary_images:
        raise InputError(
            f"gan.batch_size={settings.gan.batch_size} with threat.auxiliary_images="
            f"{settings.threat.auxiliary_images}; allowed: at most as many"
        )


def _require_layers(methods: Mapping[str, BoundMethod], place: Place) -> None:
    """Check that reconstructed images have the Fishers that clients send."""
    for label, bound in methods.items():
        if any(one.statistic.approximation for one in bound.uploads):
            try:
                matrix_layers(place.spec.skeleton())
            except UnsupportedLayerError as error:
                raise InputError(f"method {label!r} can't be attacked: {error}") from error


def _require_factors(cases: Sequence[Case], place: Place) -> None:
    """Check that the network has the Kronecker factors that are chosen."""
    chosen = {case.factors for case in cases} - {Factors.ALL}
    layers = len(matrix_layers(place.spec.skeleton())) if chosen else 0
    for factors in sorted(chosen):
        factors.require_layers(layers)


def _cases(label: str, bound: BoundMethod, settings: AttackSettings) -> dict[Factors, Case]:
    if bound.method.pooled:
        raise InputError(
            f"method {label!r} can't be attacked: it trains on all data in one place, and no server aggregates; "
            f"allowed: methods with uploads"
        )
    compressed = bound.wire.budget != "none" and bound.wire.format != "float32"
    return cases_of(label, bound.method.views, compressed=compressed, factors=settings.inversion.factors)
