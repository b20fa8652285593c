"""Jobs that do nothing but have a name."""

from dataclasses import dataclass
from typing import Any, ClassVar

from fedfisher_core.engine.job import Job, NoInputs
from fedfisher_core.engine.store import Content


@dataclass(frozen=True)
class Sleep(Job[NoInputs]):
    """A job that is done at once."""

    kind: ClassVar[str] = "sleeps"
    version: ClassVar[int] = 1

    error: Exception | None = None

    def settings(self) -> dict[str, Any]:
        return {"name": self.name}

    def compute(self, inputs: NoInputs) -> Content:
        if self.error is not None:
            raise self.error
        return Content(documents={"name.json": self.name})
