"""Jobs that keep a processor busy for a known time, as a client's training does, and store next to nothing."""

import time
from dataclasses import dataclass

import torch

from fedfisher_core.jobs import Job, NoInputs
from fedfisher_core.store import Content, Step

_WIDTH = 128


@dataclass(frozen=True)
class Nap(Job[NoInputs]):
    """Multiplies matrices for some seconds of its thread's processor time.

    Args:
        seconds: how long.
    """

    seconds: float = 0.0

    def size(self, inputs: NoInputs) -> float:
        """Say how long it takes."""
        return self.seconds

    def step(self, inputs: NoInputs) -> Step:
        """Name its result."""
        return Step(kind="naps", code="a benchmark's", settings={"name": self.name})

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


def naps(count: int, seconds: float) -> list[Nap]:
    """Make jobs.

    Args:
        count: how many.
        seconds: that each takes.

    Returns:
        Jobs that need nothing.
    """
    return [Nap(name=f"nap {number}", seconds=seconds) for number in range(count)]
