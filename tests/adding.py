"""Made-up jobs that add numbers, and may fail."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from fedfisher_core.engine.errors import DivergedClientError
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.store import Artifact, Content, read_document
from tests.counted import computed

R = TypeVar("R")


@dataclass(frozen=True)
class Others(Generic[R]):
    """Jobs that are needed."""

    needed: tuple[R, ...] = ()


@dataclass(frozen=True)
class Add(Job[Others[Artifact]]):
    """Add a number to the numbers that other jobs made."""

    kind: ClassVar[str] = "sums"
    version: ClassVar[int] = 1

    number: int = 1
    fails: str | None = None

    def settings(self) -> Mapping[str, Any]:
        return {"number": self.number, "fails": self.fails}

    def compute(self, inputs: Others[Artifact]) -> Content:
        if self.fails == "diverges":
            raise DivergedClientError(f"{self.name} diverged")
        if self.fails is not None:
            raise ValueError(self.fails)
        computed.append(self.name)
        return Content(
            documents={"sum.json": self.number + sum(read_document(one, "sum.json") for one in inputs.needed)}
        )


@dataclass(frozen=True)
class AddTogether(Add):
    """Jobs that are computed in one call, in which each client diverges for itself."""

    @classmethod
    def compute_together(
        cls, jobs: Sequence["AddTogether"], inputs: Sequence[Others[Artifact]]
    ) -> list[Content | DivergedClientError]:
        computed.append(f"{len(jobs)} together")

        def one(job: AddTogether, own: Others[Artifact]) -> Content | DivergedClientError:
            try:
                return job.compute(own)
            except DivergedClientError as error:
                return error

        return [one(job, own) for job, own in zip(jobs, inputs, strict=True)]


def add(name: str, *needed: Job[Any], kind: type[Add] = Add, **chosen: Any) -> Add:
    return kind(name=name, needs=Others(needed), **chosen)


def chain(*, first: int = 1, second: int = 10, third: int = 100) -> list[Add]:
    """Jobs called a, b and c; each needs the one before, and the last is listed first."""
    a = add("a", number=first)
    b = add("b", a, number=second)
    return [add("c", b, number=third), a, b]


def results(artifacts: Mapping[str, Artifact]) -> dict[str, int]:
    return {name: read_document(artifact, "sum.json") for name, artifact in artifacts.items()}
