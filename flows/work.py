"""The work of any experiment: its plan, what the store already holds of it, and what becomes of the results."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import finalize

from fedfisher_core.experiments.contract import Experiment, Plan, experiment_of
from fedfisher_core.experiments.loading import own_name
from fedfisher_core.jobs import Job, dependents_of, graph_of, needed_for, part_of
from fedfisher_core.lazily import computed_once
from fedfisher_core.reporting.runs import Runs
from fedfisher_core.settings import ExperimentSettings, WorkSettings
from fedfisher_core.store import Artifact, Lease, Store, open_store
from fedfisher_core.walk import Walk
from flows.invocation import command_line
from flows.probes import require_places


@dataclass(frozen=True)
class Work:
    """An experiment as far as it is done. As long as it lives no artifact is removed from its store.

    Args:
        experiment: which.
        settings: the experiment.
        plan: what is to be done.
        store: keeps the results.
        walk: how far its jobs are.
    """

    experiment: Experiment[Any, Any, Any]
    settings: ExperimentSettings
    plan: Plan
    store: Store
    walk: Walk

    @property
    def folder(self) -> Path:
        """Where the report goes."""
        return self.settings.run.reports / self.settings.name

    @computed_once
    def rows(self) -> Sequence[Any]:
        """The results, once the walk is finished."""
        return self.experiment.rows(self.plan, self.walk.outcome)

    @property
    def ends(self) -> list[str]:
        """Keys of the artifacts that no other one of the plan was made from: all others led to these."""
        made, dependents = self.walk.outcome.artifacts, dependents_of(self.walk.graph)
        return sorted({one.key for name, one in made.items() if not any(other in made for other in dependents[name])})

    def runs(self) -> Runs:
        """What MLflow records."""
        return self.experiment.runs(self.plan, self.walk.outcome, self.rows)

    def artifacts(self, stage: str) -> list[Artifact]:
        """List what a stage made and what that was made from, but for decoded data, each once.

        Args:
            stage: one of the plan's.

        Returns:
            The artifacts.
        """
        found = self.walk.outcome.artifacts
        earlier = self._earlier(stage)
        jobs = needed_for(self.walk.graph, self.plan.stages[stage])
        there = [(job, found[job.name]) for job in jobs if job.name in found and job.name not in earlier]
        # A copy of tensors that are about to go would keep them.
        made = [one for job, one in there if job.passing is None or not self.store.can_shed(one)]
        return [artifact for artifact in dict.fromkeys(made) if artifact.kind != "data"]

    def _earlier(self, stage: str) -> set[str]:
        """Names of all jobs of the stages before one."""
        names = list(self.plan.stages)
        targets = [name for one in names[: names.index(stage)] for name in self.plan.stages[one]]
        return {job.name for job in needed_for(self.walk.graph, targets)}


@dataclass(frozen=True)
class Begun(Work):
    """An experiment under way.

    Args:
        lease: keeps other runs from shedding what it rests on.
    """

    lease: Lease


def prepare(settings: ExperimentSettings, stage: str | None = None) -> Work:
    """Check everything that can be checked without work, and look up what is already there.

    Runs may shed tensors meanwhile, so nothing can be computed of what is found.

    Args:
        settings: the experiment. Settings that bear the name of params.yaml but differ from it get a name of their own.
        stage: only what this stage of the plan needs is to be done; None for all.

    Returns:
        The work.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    experiment, settings, plan, graph = _planned(settings, stage)
    store = _store_of(settings.run)
    holds = ExitStack()
    holds.enter_context(store.in_use(command_line()))
    work = Work(experiment, settings, plan, store, Walk(graph, store))
    finalize(work, holds.close)
    return work


def begin(settings: ExperimentSettings, stage: str | None = None) -> Begun:
    """Prepare work that is then done.

    Args:
        settings: as for `prepare`.
        stage: as for `prepare`.

    Returns:
        The work. As long as it lives no other run sheds anything in its store.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    experiment, settings, plan, graph = _planned(settings, stage)
    store = _store_of(settings.run)
    holds = ExitStack()
    lease = holds.enter_context(store.rested_on(command_line()))
    work = Begun(experiment, settings, plan, store, Walk(graph, store), lease)
    finalize(work, holds.close)
    return work


def _store_of(run: WorkSettings) -> Store:
    store = open_store(run.store, run.cache)
    return store.absolute() if run.runner == "dask" else store


def _planned(
    settings: ExperimentSettings, stage: str | None
) -> tuple[Experiment[Any, Any, Any], ExperimentSettings, Plan, dict[str, Job[Any]]]:
    """Plan what is to be done, and check the places that it needs."""
    settings = own_name(settings)
    experiment = experiment_of(settings)
    plan = experiment.plan(settings)
    graph = graph_of(plan.jobs)
    require_places(settings, plan.largest)
    return experiment, settings, plan, graph if stage is None else part_of(graph, plan.stages[stage])
