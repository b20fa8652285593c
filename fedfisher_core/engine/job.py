"""Jobs: named computations that hold the jobs that they need, and have a key before any work."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

from fedfisher_core.engine.code import code_of
from fedfisher_core.engine.computed_once import computed_once
from fedfisher_core.engine.errors import DivergedClientError, InputError
from fedfisher_core.engine.installed import is_core
from fedfisher_core.engine.store import Artifact, Content, Recipe
from fedfisher_core.settings import RunSettings, WorkSettings

I = TypeVar("I")  # noqa: E741


@dataclass(frozen=True)
class Numerics:
    """What decides how sums round, and hence belongs to the key of every floating-point result.

    Args:
        device: "cpu" or "cuda".
    """

    device: str = "cpu"
    threads: int = 1

    @staticmethod
    def of(run: WorkSettings) -> "Numerics":
        """Read the device and the threads from settings; without a setting for the device, it is the processor.

        Raises:
            InputError: the device does not exist here.
        """
        device = run.device if isinstance(run, RunSettings) else "cpu"
        if device != "cpu":
            if device == "cuda" and run.elsewhere:
                return Numerics(device=device, threads=run.torch_threads)
            # Importing torch takes seconds, which work on the processor need not wait for here.
            import torch

            if device == "cuda" and not torch.cuda.is_available():
                raise InputError("run.device='cuda', but torch finds no GPU; allowed here: auto, cpu")
            device = "cuda" if torch.cuda.is_available() else "cpu"
        return Numerics(device=device, threads=run.torch_threads)

    def described(self) -> dict[str, str | int]:
        """Describe it for a key."""
        return {"device": self.device, "threads": self.threads}


@dataclass(frozen=True)
class NoInputs:
    """The inputs of a job that needs no other."""


NOTHING = NoInputs()
"""Needed by a job that needs no other."""


@dataclass(frozen=True)
class Reference:
    """Stands for a needed job, by kind and key of its result, in a job that was sent to a worker."""

    kind: str
    key: str


@dataclass(frozen=True, kw_only=True)
class Job(ABC, Generic[I]):
    """One computation whose result the store keeps.

    A subclass is a frozen data class of settings, numbers and names: small, comparable and picklable. Large inputs are
    results of other jobs.

    Args:
        name: shown to people; in one plan, jobs of equal names are equal.
        needs: the jobs that must be done before, in a data class like that of the inputs.
        task: title of the task that computes this job and others of the same title; None for a separate task.
        may_diverge: whether a client that diverges is a result; otherwise it is an error.
        transient: the round whose results are deleted once all jobs that need them are done; None for results that
            stay.
    """

    kind: ClassVar[str]
    """The result's folder in the store."""
    version: ClassVar[int] = 1
    """Raised by hand when the job's code gives another result; a golden test says when."""
    action: ClassVar[str] = "compute"
    """What it does, in a word; jobs are counted by it before a run."""
    reads_sources: ClassVar[bool] = False
    """Whether it reads more than the store. Such a job is computed on the machine that starts the run."""
    indivisible: ClassVar[bool] = False
    """Whether one job of a group takes as long as all of them; then none is tried alone if they fail together."""

    name: str
    # Keys name results. Comparing `needs` would compare all earlier jobs, again and again.
    needs: Any = field(default=NOTHING, compare=False, repr=False)
    task: str | None = None
    numerics: Numerics = Numerics()
    may_diverge: bool = False
    transient: int | None = None

    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """Return everything that can change the result except the needed jobs, as JSON has it.

        A setting that is added later is left out where it has the value of the earlier behaviour, so that stored
        results are found.
        """

    @abstractmethod
    def compute(self, inputs: I) -> Content:
        """Compute the result from `needs` with artifacts instead of jobs."""

    @classmethod
    def compute_together(cls, jobs: Sequence[Any], inputs: Sequence[Any]) -> Sequence[Content | DivergedClientError]:
        """Compute jobs of this class with the same `task`.

        Returns:
            For each job its result, or the error of its client that diverged.
        """
        return [job.compute(own) for job, own in zip(jobs, inputs, strict=True)]

    @property
    def title(self) -> str:
        """Title of the task that computes it."""
        return self.task or self.name

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of the task, by which people filter."""
        return (self.kind,)

    @computed_once
    def roles(self) -> "dict[str, Job[Any] | Reference]":
        """The needed jobs by role."""
        return dict(roles_in(self.needs))

    @property
    def needed(self) -> "list[Job[Any]]":
        """The needed jobs; empty for a job that was sent to a worker."""
        return [one for one in self.roles.values() if isinstance(one, Job)]

    @computed_once
    def recipe(self) -> Recipe:
        """Everything that can change the result, and hence its key."""
        settings = self.settings()
        if not is_core(type(self)):
            # A plug-in's author need not raise a version.
            settings = {**settings, "job": code_of(type(self))}
        return Recipe(
            kind=self.kind,
            version=self.version,
            settings=settings,
            inputs={role: one.key for role, one in self.roles.items()},
        )

    @property
    def key(self) -> str:
        """Names the result before any work."""
        return self.recipe.key

    def detached(self) -> Any:
        """Return the job as workers get it: with references instead of the jobs that it needs."""
        return replace(self, needs=map_roles(self.needs, lambda one: Reference(one.kind, one.key)))


def fields_of(one: Any) -> dict[str, Any]:
    """Return the fields of a data class by name, without its cached properties."""
    return {each.name: getattr(one, each.name) for each in fields(one)}


def roles_in(needs: Any, role: str = "") -> "Iterator[tuple[str, Job[Any] | Reference]]":
    """Yield each job in fields, sequences, mappings and data classes, with its role."""
    if isinstance(needs, Job | Reference):
        yield role, needs
        return
    for name, one in _parts(needs):
        yield from roles_in(one, f"{role}/{name}" if role else name)


def map_roles(needs: Any, change: "Callable[[Job[Any] | Reference], Any]") -> Any:
    """Replace each job in a data class of needs; see `roles_in`."""
    if isinstance(needs, Job | Reference):
        return change(needs)
    if is_dataclass(needs) and not isinstance(needs, type):
        return replace(needs, **{name: map_roles(one, change) for name, one in _parts(needs)})
    if isinstance(needs, Mapping):
        return {key: map_roles(one, change) for key, one in needs.items()}
    return tuple(map_roles(one, change) for one in needs)


def artifacts_in(inputs: Any) -> Iterator[Artifact]:
    """List the artifacts in a data class of inputs."""
    if isinstance(inputs, Artifact):
        yield inputs
        return
    for _, one in _parts(inputs):
        yield from artifacts_in(one)


def _parts(needs: Any) -> Iterator[tuple[str, Any]]:
    if is_dataclass(needs) and not isinstance(needs, type):
        yield from ((one.name, getattr(needs, one.name)) for one in fields(needs))
    elif isinstance(needs, Mapping):
        yield from ((str(key), one) for key, one in needs.items())
    else:
        yield from ((str(number), one) for number, one in enumerate(needs))
