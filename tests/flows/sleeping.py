"""Jobs that do nothing but say how long they take."""

from dataclasses import dataclass

from fedfisher_core.jobs import Job, NoInputs
from fedfisher_core.store import Content, Step


@dataclass(frozen=True)
class Sleep(Job[NoInputs]):
    """A job that says how long it takes."""

    weight: float = 0.0
    error: Exception | None = None

    def size(self, inputs: NoInputs) -> float:
        return self.weight

    def step(self, inputs: NoInputs) -> Step:
        return Step(kind="sleeps", code="made up", settings={"name": self.name})

    def compute(self, inputs: NoInputs) -> Content:
        if self.error is not None:
            raise self.error
        return Content(documents={"name.json": self.name})
