"""The work of a privacy attack: train and aggregate the federations, then attack one client of each."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fedfisher_core.settings import Cell
from fedfisher_core.steps.attack import Attacked, attack_step
from fedfisher_core.store import Artifact
from flows.attack_plan import AttackedFederation, AttackPlan
from flows.pool import Pool, task_runner
from flows.progress import Progress
from flows.work import Work, working
from tasks.attack import attack, measure_bounds, train_judge, train_prior


@dataclass(frozen=True)
class Trial:
    """One target label in one federation.

    Args:
        attacked: the federation.
        cell: which data set, network and seed.
        work: what was trained.
    """

    attacked: AttackedFederation
    cell: Cell
    work: Work

    @property
    def target(self) -> int:
        """The attacked label."""
        return self.attacked.federation.target_label

    @property
    def partition(self) -> Artifact:
        """Who holds what."""
        return self.work.partitions[self.cell]

    @property
    def data(self) -> Artifact:
        """The decoded data set."""
        return self.work.data[self.cell.dataset]

    @property
    def place(self) -> tuple[str, int, int]:
        """Data set, label and seed: trials with the same share partition, prior and bounds."""
        return (self.cell.dataset, self.target, self.cell.seed)

    def on(self, label: str) -> Attacked:
        """What is attacked through a method."""
        plan = self.attacked.plan
        return Attacked(
            federation=plan.context,
            cell=self.cell,
            target=self.target,
            bound=plan.methods[label],
            case=self.attacked.cases[label],
            clients=self.work.statistics[self.cell],
            data=self.data,
            partition=self.partition,
        )


@dataclass(frozen=True)
class Found:
    """What the attack's tasks made.

    Args:
        judges: evaluators by data set.
        priors: GANs by data set, label and seed.
        bounds: floors and ceilings, likewise.
        attacks: by the key of their step.
    """

    judges: dict[str, Artifact] = field(default_factory=dict)
    priors: dict[tuple[str, int, int], Artifact] = field(default_factory=dict)
    bounds: dict[tuple[str, int, int], Artifact] = field(default_factory=dict)
    attacks: dict[str, Artifact] = field(default_factory=dict)


def train(attacked: AttackedFederation) -> list[Trial]:
    """Train and aggregate the federations of one target label and privacy budget.

    Args:
        attacked: the federations, which differ in data set, network and seed.

    Returns:
        What is to be attacked.
    """
    with working(attacked.plan) as work:
        work.train_and_aggregate()
    return [Trial(attacked, cell, work) for cell in attacked.plan.cells]


def carry_out(plan: AttackPlan, trials: Sequence[Trial]) -> Found:
    """Train the judges and priors side by side, then attack.

    Args:
        plan: the experiment.
        trials: what is attacked.

    Returns:
        What was made.
    """
    found = Found()
    places = {trial.place: trial for trial in trials}
    datasets = {trial.cell.dataset: trial.data for trial in trials}
    attacks = sum(len(trial.attacked.cases) for trial in trials)
    total = len(datasets) + 2 * len(places) + attacks
    with (
        Progress(name=f"{plan.context.settings.name}: attack", total=total) as progress,
        task_runner(plan.context) as runner,
    ):
        pool = Pool(plan.context, runner, progress)
        for place, trial in places.items():

            def keep_prior(prior: Artifact, place: tuple[str, int, int] = place) -> None:
                found.priors[place] = prior

            pool.submit(
                train_prior,
                then=keep_prior,
                cell=trial.cell,
                target=trial.target,
                data=trial.data,
                partition=trial.partition,
            )
        for dataset, data in datasets.items():

            def keep_judge(judge: Artifact, dataset: str = dataset) -> None:
                found.judges[dataset] = judge

            pool.submit(train_judge, then=keep_judge, data=data)
        pool.run()
        for place, trial in places.items():

            def keep_bounds(bounds: Artifact, place: tuple[str, int, int] = place) -> None:
                found.bounds[place] = bounds

            pool.submit(
                measure_bounds,
                then=keep_bounds,
                cell=trial.cell,
                target=trial.target,
                data=trial.data,
                partition=trial.partition,
                prior=found.priors[place],
                judge=found.judges[trial.cell.dataset],
            )
        distinct = {
            attack_key(plan, trial, label, found): (trial, label) for trial in trials for label in trial.attacked.cases
        }
        progress.drop(attacks - len(distinct))
        for key, (trial, label) in distinct.items():

            def keep_attack(artifact: Artifact, key: str = key) -> None:
                found.attacks[key] = artifact

            pool.submit(
                attack,
                then=keep_attack,
                attacked=trial.on(label),
                prior=found.priors[trial.place],
                judge=found.judges[trial.cell.dataset],
            )
        pool.run()
    return found


def attack_key(plan: AttackPlan, trial: Trial, label: str, found: Found) -> str:
    """Name the attack through a method; methods that show the server the same have the same.

    Args:
        plan: the experiment.
        trial: what is attacked.
        label: the method's.
        found: holds the prior and the judge.

    Returns:
        The key of its artifact.
    """
    return attack_step(plan.context, trial.on(label), found.priors[trial.place], found.judges[trial.cell.dataset]).key
