"""Jobs that keep a processor busy for a known time, as a client's training does, and store next to nothing."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fedfisher_core.engine.job import Job, NoInputs
from fedfisher_core.engine.store import Content

_WIDTH = 128


@dataclass(frozen=True)
class Nap(Job[NoInputs]):
    """Multiplies matrices for some seconds of its thread's processor time.

    Args:
        seconds: how long.
    """

    kind: ClassVar[str] = "naps"
    version: ClassVar[int] = 1

    seconds: float = 0.0

    def settings(self) -> Mapping[str, Any]:
        """Name its result."""
        return {"name": self.name}

    def compute(self, inputs: NoInputs) -> Content:
        """Work, and say so."""
        work(self.seconds)
        return Content(documents={"name.json": self.name})


def work(seconds: float) -> None:
    """Multiply matrices.

    Args:
        seconds: of this thread's processor time.
    """
    matrix = torch.eye(_WIDTH)
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        matrix = matrix @ matrix


def naps(count: int, seconds: float, *, tasks: int) -> list[Nap]:
    """Make jobs.

    Args:
        count: how many.
        seconds: that each takes.
        tasks: how many tasks compute them, as a run has few tasks for the clients of a large federation.

    Returns:
        Jobs that need nothing.
    """
    return [
        Nap(name=f"nap {number}", task=f"naps, task {number * tasks // count}", seconds=seconds)
        for number in range(count)
    ]
