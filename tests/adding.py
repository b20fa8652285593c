"""Made-up jobs that add numbers, and may fail."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from fedfisher_core.errors import DivergedClientError
from fedfisher_core.jobs import Job
from fedfisher_core.store import Artifact, Content, Step, read_document
from tests.counted import computed

R = TypeVar("R")


@dataclass(frozen=True)
class Others(Generic[R]):
    """Jobs that are needed, and those that can be missing."""

    needed: tuple[R, ...] = ()
    optional: Mapping[str, R] = field(default_factory=dict)


@dataclass(frozen=True)
class Add(Job[Others[Artifact]]):
    """Add a number to the numbers that other jobs made."""

    number: int = 1
    weight: float = 0.0
    fails: str | None = None
    least: int = 0

    def size(self, inputs: Others[Artifact]) -> float:
        return self.weight

    def without(self, lost: Mapping[str, Exception]) -> None:
        if any(name in lost for name in self.needs.needed) or len(self.needs.optional) - len(lost) < self.least:
            raise DivergedClientError(f"{self.name} can't do without {', '.join(sorted(lost))}")

    def step(self, inputs: Others[Artifact]) -> Step:
        seen = {f"needed_{i}": one.digest for i, one in enumerate(inputs.needed)}
        seen |= {f"optional_{key}": one.digest for key, one in inputs.optional.items()}
        return Step(kind="sums", code="made up", settings={"number": self.number, "fails": self.fails}, inputs=seen)

    def compute(self, inputs: Others[Artifact]) -> Content:
        if self.fails == "diverges":
            raise DivergedClientError(f"{self.name} diverged")
        if self.fails is not None:
            raise ValueError(self.fails)
        computed.append(self.name)
        others = sum(read_document(one, "sum.json") for one in (*inputs.needed, *inputs.optional.values()))
        return Content(documents={"sum.json": self.number + others})


def add(name: str, *needed: str, optional: Sequence[str] = (), **chosen: Any) -> Add:
    return Add(name=name, needs=Others(needed, {one: one for one in optional}), **chosen)


def results(artifacts: Mapping[str, Artifact]) -> dict[str, int]:
    return {name: read_document(artifact, "sum.json") for name, artifact in artifacts.items()}


CHAIN = [add("c", "b", number=100), add("a", number=1), add("b", "a", number=10)]
