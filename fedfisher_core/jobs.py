"""Jobs: named computations with typed inputs, and the graph that they form."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

from fedfisher_core.errors import DivergedClientError, InputError
from fedfisher_core.settings import RunSettings, WorkSettings
from fedfisher_core.store import Artifact, Content, Step

I = TypeVar("I")  # noqa: E741


@dataclass(frozen=True)
class Numerics:
    """What decides how sums round, and hence belongs to the key of whatever is computed in floating point.

    Args:
        device: type of the device, "cpu" or "cuda".
        threads: of one job's tensor operations.
    """

    device: str = "cpu"
    threads: int = 1

    @staticmethod
    def of(run: WorkSettings) -> "Numerics":
        """Find out where settings let jobs compute.

        Args:
            run: the settings; those without a device compute on the processor.

        Returns:
            The device and the threads.

        Raises:
            InputError: the device is not there.
        """
        device = run.device if isinstance(run, RunSettings) else "cpu"
        if device != "cpu":
            if device == "cuda" and run.elsewhere:
                return Numerics(device=device, threads=run.torch_threads)
            # Whoever asks for the processor need not wait for torch.
            import torch

            if device == "cuda" and not torch.cuda.is_available():
                raise InputError("run.device='cuda', but torch finds no GPU; allowed here: auto, cpu")
            device = "cuda" if torch.cuda.is_available() else "cpu"
        return Numerics(device=device, threads=run.torch_threads)

    def described(self) -> dict[str, str | int]:
        """What belongs to a key."""
        return {"device": self.device, "threads": self.threads}


@dataclass(frozen=True)
class NoInputs:
    """The inputs of a job that needs no other."""


NOTHING = NoInputs()
"""What such a job needs."""


@dataclass(frozen=True, kw_only=True)
class Job(ABC, Generic[I]):
    """One computation whose result the store keeps.

    A subclass is a frozen data class of settings, numbers and names: small, comparable and picklable. Whatever is
    large comes as an input, an artifact that another job made.

    Args:
        name: what people read, and what other jobs need it by; in one graph, equal names mean equal jobs.
        needs: names of the jobs that must be done before, in a data class like that of the inputs.
        task: name of the task that computes it with others; None for a task of its own.
        numerics: where it computes.
        may_be_lost: whether the work goes on without it when its client diverges.
        passing: the round whose clients' results lose their tensors when all that needs them is done; None for a result
            that stays whole.
    """

    reads_sources: ClassVar[bool] = False
    """Whether it reads more than the store: it is computed where the run was started, where its sources are."""

    name: str
    needs: Any = NOTHING
    task: str | None = None
    numerics: Numerics = Numerics()
    may_be_lost: bool = False
    passing: int | None = None

    @property
    def batch(self) -> str:
        """Name of its task; missing jobs of one batch that can start together share a task."""
        return self.task or self.name

    @property
    def whole(self) -> bool:
        """Whether one job of a batch takes as long as all of them, so that none is tried alone where they fail."""
        return False

    @property
    def follows(self) -> bool:
        """Whether it is so short that whoever makes the last of what it needs computes it along."""
        return False

    @property
    def pace(self) -> Hashable:
        """What jobs have in common of which each takes as long as the others, in proportion to its size."""
        return type(self)

    @abstractmethod
    def step(self, inputs: I) -> Step:
        """Name the result.

        Args:
            inputs: the artifacts that `needs` names.

        Returns:
            Everything that can change the result.
        """

    @abstractmethod
    def compute(self, inputs: I) -> Content:
        """Compute the result.

        Args:
            inputs: the artifacts that `needs` names.

        Returns:
            What the store keeps.
        """

    @classmethod
    def compute_together(cls, jobs: Sequence[Any], inputs: Sequence[Any]) -> Sequence[Content | DivergedClientError]:
        """Compute jobs of one batch.

        Args:
            jobs: of this class, with the same `batch`.
            inputs: of each.

        Returns:
            The result of each; or that its client diverged, where the others have theirs.
        """
        return [job.compute(own) for job, own in zip(jobs, inputs, strict=True)]

    def size(self, inputs: I) -> float:
        """Guess how long it takes, in examples that pass through a network; the largest jobs start first."""
        return 0.0

    def reads(self) -> Iterable[str]:
        """Name the jobs of which it needs more than that they are done, and their digests and documents."""
        return names_in(self.needs)

    def without(self, lost: Mapping[str, Exception]) -> None:
        """Decide whether it can do without jobs that it needs, directly or through others that were lost with them.

        Lost jobs are left out of the mappings among its inputs.

        Args:
            lost: why each was lost, by name.

        Raises:
            DivergedClientError: it can't.
        """
        raise next(iter(lost.values()))


def digests_of(inputs: Any) -> dict[str, str]:
    """List what names the artifacts of a data class, for a step; what lies in mappings is left out.

    Args:
        inputs: of a job.

    Returns:
        Digests by the name of the field.
    """
    found = {field.name: getattr(inputs, field.name) for field in fields(inputs)}
    return {name: one.digest for name, one in found.items() if isinstance(one, Artifact)}


def names_in(needs: Any) -> Iterator[str]:
    """List the jobs that a data class of needs names.

    Args:
        needs: names in fields, sequences, mappings and data classes of them.

    Yields:
        Each name.
    """
    if isinstance(needs, str):
        yield needs
    elif is_dataclass(needs):
        for field in fields(needs):
            yield from names_in(getattr(needs, field.name))
    else:
        for one in needs.values() if isinstance(needs, Mapping) else needs:
            yield from names_in(one)


def inputs_of(needs: Any, found: Mapping[str, Artifact]) -> Any:
    """Put artifacts in the place of names.

    Args:
        needs: as for `names_in`.
        found: artifacts by the name of their job; what is missing in it is left out of mappings.

    Returns:
        The same data class with artifacts.

    Raises:
        KeyError: what is missing is needed outside a mapping.
    """
    if isinstance(needs, str):
        return found[needs]
    if is_dataclass(needs) and not isinstance(needs, type):
        return replace(needs, **{one.name: inputs_of(getattr(needs, one.name), found) for one in fields(needs)})
    if isinstance(needs, Mapping):
        there = {key: one for key, one in needs.items() if all(name in found for name in names_in(one))}
        return {key: inputs_of(one, found) for key, one in there.items()}
    return tuple(inputs_of(one, found) for one in needs)


def graph_of(jobs: Iterable[Job[Any]]) -> dict[str, Job[Any]]:
    """Put jobs into an order in which each comes after those that it needs.

    Args:
        jobs: in any order; a job may be listed more than once.

    Returns:
        The jobs by name.

    Raises:
        InputError: two jobs share a name, one needs a job that is not there, or jobs need each other in a circle.
    """
    known: dict[str, Job[Any]] = {}
    for job in jobs:
        if known.setdefault(job.name, job) != job:
            raise InputError(f"two different jobs are called {job.name!r}; allowed: one")
    needed = {name: tuple(dict.fromkeys(names_in(job.needs))) for name, job in known.items()}
    for name, others in needed.items():
        for other in others:
            if other not in known:
                raise InputError(f"job {name!r} needs {other!r}, which is no job of the graph")
    dependents = dependents_of(known)
    waiting = {name: len(others) for name, others in needed.items()}
    order = [name for name, count in waiting.items() if count == 0]
    for name in order:
        for dependent in dependents[name]:
            waiting[dependent] -= 1
            if waiting[dependent] == 0:
                order.append(dependent)
    if len(order) < len(known):
        raise InputError(f"jobs need each other in a circle: {', '.join(map(repr, _circle(needed, set(order))))}")
    return {name: known[name] for name in order}


def _circle(needed: Mapping[str, Sequence[str]], done: Collection[str]) -> list[str]:
    """Follow needs that are never met until they come back."""
    path = [min(name for name in needed if name not in done)]
    while path[-1] not in path[:-1]:
        path.append(next(name for name in needed[path[-1]] if name not in done))
    return path[path.index(path[-1]) : -1]


def dependents_of(graph: Mapping[str, Job[Any]]) -> dict[str, list[str]]:
    """List by name of a job the names of those that need it directly."""
    dependents: dict[str, list[str]] = {name: [] for name in graph}
    for name, job in graph.items():
        for other in dict.fromkeys(names_in(job.needs)):
            dependents[other].append(name)
    return dependents


def needed_for(graph: Mapping[str, Job[Any]], targets: Iterable[str]) -> list[Job[Any]]:
    """List jobs and all that they need.

    Args:
        graph: by name.
        targets: names of some of its jobs.

    Returns:
        The jobs, in the graph's order.
    """
    wanted: set[str] = set()
    todo = list(targets)
    while todo:
        name = todo.pop()
        if name not in wanted:
            wanted.add(name)
            todo += names_in(graph[name].needs)
    return [job for name, job in graph.items() if name in wanted]


def part_of(graph: Mapping[str, Job[Any]], targets: Iterable[str]) -> dict[str, Job[Any]]:
    """Take jobs and all that they need out of a graph.

    Args:
        graph: by name.
        targets: names of some of its jobs.

    Returns:
        The part, by name and in the graph's order. What jobs outside need as well does not pass.
    """
    part = {job.name: job for job in needed_for(graph, targets)}
    needed_outside = {need for name, job in graph.items() if name not in part for need in names_in(job.needs)}
    return {name: replace(job, passing=None) if name in needed_outside else job for name, job in part.items()}
