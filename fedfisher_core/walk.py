"""Walking a graph of jobs: the store decides what is computed, and whoever computes it is told what is ready."""

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedfisher_core.batches import Batch, Follower, compute
from fedfisher_core.errors import DivergedClientError, JobError, SomeDivergedError
from fedfisher_core.failures import Failure
from fedfisher_core.jobs import Job, dependents_of, inputs_of, names_in
from fedfisher_core.passing import Passing, Pruned
from fedfisher_core.restoring import Restoring
from fedfisher_core.store import Artifact, Lease, Step, Store


@dataclass(frozen=True)
class Outcome:
    """What a graph has come to.

    Args:
        artifacts: by name of the job that made them.
        lost: why jobs are missing that the work went on without, by name.
        failed: why jobs are missing that nothing could be done without, and those that need them, by name.
    """

    artifacts: Mapping[str, Artifact]
    lost: Mapping[str, Exception] = field(default_factory=dict)
    failed: Mapping[str, Failure] = field(default_factory=dict)


class Walk:
    """The state of a graph under way; it computes nothing itself.

    As soon as a job's inputs are there, its step is derived. Jobs with equal steps are one. What the store holds is
    taken from there; the rest waits in `take`, the largest first.

    Of what was shed, digest and documents are there: jobs after it are named by it as by any other. Only where a job
    has to be computed that reads its tensors, it is computed again first, and so is what it reads itself.

    Args:
        graph: jobs by name, each after those that it needs.
        store: keeps the results.
    """

    def __init__(self, graph: Mapping[str, Job[Any]], store: Store) -> None:
        self.graph = graph
        self._store = store
        self._dependents = dependents_of(graph)
        self._waiting = {name: len(set(names_in(job.needs))) for name, job in graph.items()}
        self._artifacts: dict[str, Artifact] = {}
        self._lost: dict[str, Exception] = {}
        self._failed: dict[str, Failure] = {}
        # Names of all jobs with the same key, by that key, from when the first is missed until it is computed.
        self._missing: dict[str, list[str]] = {}
        self._ready: list[tuple[float, int, tuple[str, bool]]] = []
        self._batches: dict[tuple[str, bool], list[tuple[Job[Any], Any, Step]]] = {}
        self._passing = Passing(graph, self._dependents, self._artifacts, store)
        self._restoring = Restoring(graph, self._artifacts, self._passing)
        self._order = itertools.count()
        self._settle([name for name, count in self._waiting.items() if count == 0])

    @property
    def finished(self) -> bool:
        """Whether every job is done, lost or failed."""
        return self.done == len(self.graph)

    @property
    def done(self) -> int:
        """How many jobs are done, lost or failed."""
        return len(self._artifacts) + len(self._lost) + len(self._failed)

    @property
    def outcome(self) -> Outcome:
        """What was made so far."""
        return Outcome(artifacts=self._artifacts, lost=self._lost, failed=self._failed)

    @property
    def ready(self) -> int:
        """How many batches can start."""
        return len(self._ready)

    def take_pruned(self) -> Pruned:
        """Say what was shed since this was asked for last."""
        return self._passing.take_pruned()

    @property
    def may_shed(self) -> bool:
        """Whether there is something that nobody needs any more."""
        return self._passing.waits

    def shed(self, lease: Lease) -> None:
        """Remove the tensors of results that pass, of those that nobody needs any more.

        Args:
            lease: of this run; where there are other runs, everything is left for now.
        """
        self._passing.shed(lease)

    def take(self, fits: Callable[[Batch], bool] = lambda batch: True) -> Batch | None:
        """Take the largest batch that can start.

        Args:
            fits: says whether this batch is wanted.

        Returns:
            The batch, which must be given to `keep` or `lose` in the end; None while nothing can start, or it does not
            fit.
        """
        if not self._ready:
            return None
        name = self._ready[0][-1]
        jobs, inputs, steps = zip(*self._batches[name], strict=True)
        batch = Batch(jobs=jobs, inputs=inputs, steps=steps)
        if not fits(batch):
            return None
        heapq.heappop(self._ready)
        del self._batches[name]
        return replace(batch, followers=tuple(self._followers(batch)))

    def _followers(self, batch: Batch) -> Iterator[Follower]:
        made = {job.name for job in batch.jobs}
        for name in dict.fromkeys(one for job in batch.jobs for one in self._dependents[job.name]):
            job = self.graph[name]
            if not job.follows or any(name in ended for ended in (self._artifacts, self._lost, self._failed)):
                continue
            others = [need for need in names_in(job.needs) if need not in made]
            there = {need: self._artifacts[need] for need in others if need in self._artifacts}
            if len(there) == len(set(others)) and not any(artifact.shed for artifact in there.values()):
                yield Follower(job, there)

    def keep(self, batch: Batch, artifacts: Sequence[Artifact]) -> Failure | None:
        """Note what a batch has made.

        Args:
            batch: from `take`.
            artifacts: one a job; and any that other jobs would be found to have made, so that the store is not asked.

        Returns:
            Why some jobs can't be computed, where what they read is made again and is not what it was; None elsewhere.
        """
        done, failure = [], None
        own, along = artifacts[: len(batch.jobs)], artifacts[len(batch.jobs) :]
        for job, step, artifact in zip(batch.jobs, batch.steps, own, strict=True):
            if step.key in self._restoring:
                ready, changed = self._restoring.keep(job.name, artifact)
                for name in ready:
                    self._start(name)
                failure = failure if changed is None else self._leave([job.name], changed)
                continue
            for name in self._missing.pop(step.key):
                self._note(name, artifact)
                done.append(name)
        self._settle(self._released(done), {artifact.key: artifact for artifact in along})
        return failure

    def lose(self, batch: Batch, error: Exception) -> Failure | None:
        """Go on without a batch.

        Where a client diverged, each job that needs it decides whether it can do without; what the others of a batch
        have made is in the store. Any other failure takes all jobs with it that need the failed one. Jobs that failed
        together are tried again one by one first, unless each would do the work of all.

        Args:
            batch: from `take`.
            error: why it failed.

        Returns:
            What has failed with it; None where nothing has.
        """
        if isinstance(error, SomeDivergedError):
            return self._lose_some(batch, error.diverged)
        diverged = isinstance(error, DivergedClientError)
        if len(batch.jobs) > 1 and not diverged and not batch.jobs[0].whole:
            for job, inputs, step in zip(batch.jobs, batch.inputs, batch.steps, strict=True):
                self._queue(job, inputs, step, alone=True)
            return None
        if batch.steps[0].key in self._restoring:
            return self._leave((job.name for job in batch.jobs), Failure.of(batch.jobs[0].name, error))
        names = [name for step in batch.steps for name in self._missing.pop(step.key)]
        if diverged and all(self.graph[name].may_be_lost for name in names):
            return self._go_on_without(names, error)
        return self._fail(names, Failure.of(names[0], error))

    def _lose_some(self, batch: Batch, diverged: Mapping[str, str]) -> Failure | None:
        failure = None
        for job, inputs, step in zip(batch.jobs, batch.inputs, batch.steps, strict=True):
            if job.name in diverged:
                alone = Batch((job,), (inputs,), (step,))
                failure = self.lose(alone, DivergedClientError(diverged[job.name])) or failure
            else:
                self._queue(job, inputs, step, alone=True)
        return failure

    def _go_on_without(self, names: list[str], error: Exception) -> Failure | None:
        failure, released = None, []
        self._lost |= dict.fromkeys(names, error)
        for name in names:
            for dependent in self._dependents[name]:
                self._waiting[dependent] -= 1
                if dependent in self._lost or dependent in self._failed:
                    continue
                job = self.graph[dependent]
                if job.may_be_lost:
                    self._lost[dependent] = error
                    names.append(dependent)
                    continue
                try:
                    job.without({need: self._lost[need] for need in names_in(job.needs) if need in self._lost})
                except DivergedClientError as refusal:
                    failure = self._fail([dependent], Failure.of(names[0], refusal))
                    continue
                if self._waiting[dependent] == 0:
                    released.append(dependent)
        self._settle(released)
        return failure

    def _fail(self, names: Sequence[str], failure: Failure) -> Failure:
        """Leave jobs out with all that need them."""
        todo = [*names]
        while todo:
            name = todo.pop()
            if name not in self._failed and name not in self._lost:
                self._failed[name] = failure
                todo += self._dependents[name]
        return failure

    def _released(self, done: Sequence[str]) -> list[str]:
        """Count finished jobs off those that need them; list the ones that need no more."""
        released = []
        for name in done:
            for dependent in self._dependents[name]:
                self._waiting[dependent] -= 1
                if self._waiting[dependent] == 0 and dependent not in self._lost and dependent not in self._failed:
                    released.append(dependent)
        return released

    def _settle(self, names: Sequence[str], along: Mapping[str, Artifact] | None = None) -> None:
        """Look jobs up whose inputs are there, and those that this sets free; first by key among what is at hand."""
        todo = list(names)
        while todo:
            done = [name for name in todo if self._find(name, along or {})]
            todo = self._released(done)

    def _find(self, name: str, along: Mapping[str, Artifact]) -> bool:
        job = self.graph[name]
        inputs = inputs_of(job.needs, self._artifacts)
        step = job.step(inputs)
        if step.key in self._missing:
            self._missing[step.key].append(name)
            return False
        found = along.get(step.key) or self._store.find(step)
        if found is not None:
            self._note(name, found)
            return True
        self._missing[step.key] = [name]
        for ready in self._restoring.ask(name):
            if ready == name:
                self._queue(job, inputs, step)
            else:
                self._start(ready)
        return False

    def _note(self, name: str, artifact: Artifact) -> None:
        self._artifacts[name] = artifact
        self._passing.done(name)

    def _start(self, name: str) -> None:
        """Queue a job whose inputs are whole now."""
        job = self.graph[name]
        inputs = inputs_of(job.needs, self._artifacts)
        self._queue(job, inputs, job.step(inputs))

    def _leave(self, names: Iterable[str], failure: Failure) -> Failure:
        """Leave out what can't be computed again, and all that needs it."""
        for wanting in [one for name in names for one in self._restoring.leave(name)]:
            job = self.graph[wanting]
            step = job.step(inputs_of(job.needs, self._artifacts))
            self._fail(self._missing.pop(step.key), failure)
        return failure

    def _queue(self, job: Job[Any], inputs: Any, step: Step, *, alone: bool = False) -> None:
        # What is computed again fails in another way than what is missing, so that no batch has both.
        batch = (job.name if alone else job.batch, step.key in self._restoring)
        if batch not in self._batches:
            heapq.heappush(self._ready, (-job.size(inputs), next(self._order), batch))
        self._batches.setdefault(batch, []).append((job, inputs, step))


def walk_here(graph: Mapping[str, Job[Any]], store: Store) -> Outcome:
    """Do all of a graph's work in this thread, one batch after another.

    Args:
        graph: jobs by name, each after those that it needs.
        store: keeps the results.

    Returns:
        What was made.

    Raises:
        Exception: a job failed.
        JobError: what was shed and made again is not what it was.
        DivergedClientError: a job can't do without a client that diverged.
    """
    with store.rested_on("work without orchestration") as lease:
        walk = Walk(graph, store)
        walk.shed(lease)
        while (batch := walk.take()) is not None:
            try:
                artifacts = compute(batch, store)
            except (DivergedClientError, SomeDivergedError) as error:
                failure = walk.lose(batch, error)
                if failure is not None:
                    raise DivergedClientError(failure.reason) from error
            else:
                failure = walk.keep(batch, artifacts)
                if failure is not None:
                    raise JobError(f"{failure.job}: {failure.reason}", failure.trace)
            walk.shed(lease)
    return walk.outcome


def require_all(jobs: Iterable[Job[Any]], outcome: Outcome) -> None:
    """Check that all jobs of an experiment can do without what was lost, those that are not asked for yet included.

    Args:
        jobs: of the experiment.
        outcome: of some or all of them.

    Raises:
        Exception: one can't.
    """
    for job in jobs:
        lost = {name: outcome.lost[name] for name in names_in(job.needs) if name in outcome.lost}
        if lost and not job.may_be_lost:
            job.without(lost)
