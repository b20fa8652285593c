"""What a piece of work costs: wall seconds, and processor seconds, which other processes do not change."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch


def usable_processors() -> int:
    """Count the processors that this process may use; all there are where the system does not say, as on macOS."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_SECONDS, _PROCESSOR_SECONDS = "seconds", "processor_seconds"


@dataclass(frozen=True)
class Spent:
    """What work took.

    Args:
        seconds: on the clock.
        processor_seconds: of the processors that did it; None where other work can't be excluded.
    """

    seconds: float = 0.0
    processor_seconds: float | None = 0.0

    @staticmethod
    def of(timings: Mapping[str, float], name: str = "") -> "Spent":
        """Read it from an artifact's timings; see `timings`."""
        return Spent(timings[name + _SECONDS], timings.get(name + _PROCESSOR_SECONDS))

    def __add__(self, other: "Spent") -> "Spent":
        if self.processor_seconds is None or other.processor_seconds is None:
            return Spent(self.seconds + other.seconds, None)
        return Spent(self.seconds + other.seconds, self.processor_seconds + other.processor_seconds)

    def __sub__(self, other: "Spent") -> "Spent":
        """Subtract what was a part of this; zero where the clock's resolution makes the part larger."""
        seconds = max(0.0, self.seconds - other.seconds)
        if self.processor_seconds is None or other.processor_seconds is None:
            return Spent(seconds, None)
        return Spent(seconds, max(0.0, self.processor_seconds - other.processor_seconds))

    def share(self, part: float) -> "Spent":
        """Return a fraction of it."""
        processor = None if self.processor_seconds is None else part * self.processor_seconds
        return Spent(part * self.seconds, processor)

    def timings(self, name: str = "") -> dict[str, float]:
        """Write it as an artifact's timings, whose names begin with `name`."""
        processor = {} if self.processor_seconds is None else {name + _PROCESSOR_SECONDS: self.processor_seconds}
        return {name + _SECONDS: self.seconds, **processor}


def total(spent: Iterable[Spent]) -> Spent:
    """Add up."""
    return sum(spent, Spent())


class Stopwatch:
    """Measures the work of the thread that made it, from then on.

    With one thread for tensors, the default of `run.torch_threads`, a task's own thread does all of its work, and no
    other task uses that thread: its `thread_time` is right for every runner. With more threads, only the process counts
    the helping threads. Its `process_time` is right where no other task computes in the process meanwhile: with the
    runners `processes` and `dask`, and with `threads` and one worker. Otherwise processor seconds are None. They are
    also None for a GPU, whose work no processor does. With one thread, what SciPy's eigenvectors take in their own
    threads (`input_moments`, `class_moments`) is left out.
    """

    def __init__(self, device: str = "cpu") -> None:
        self._clock = _clock_of(device)
        self._begun = self._read()

    def spent(self) -> Spent:
        """Return what the work took so far."""
        seconds, processor = self._read()
        if self._clock is time.process_time and not _alone():
            processor = None
        begun = self._begun[1]
        return Spent(seconds - self._begun[0], None if processor is None or begun is None else processor - begun)

    def _read(self) -> tuple[float, float | None]:
        return time.perf_counter(), None if self._clock is None else self._clock()


@dataclass(eq=False)
class _Task:
    alone: bool


_lock = threading.Lock()
_under_way: list[_Task] = []
_current = threading.local()


@contextmanager
def at_work() -> Iterator[None]:
    """Note that this thread computes a task, so that it is known which tasks shared their process."""
    with _lock:
        task = _Task(alone=not _under_way)
        for other in _under_way:
            other.alone = False
        _under_way.append(task)
    _current.task = task
    try:
        yield
    finally:
        _current.task = None
        with _lock:
            _under_way.remove(task)


def _alone() -> bool:
    """Say whether no other task has computed in this process since this thread's task began."""
    task: _Task | None = getattr(_current, "task", None)
    return task is None or task.alone


def _clock_of(device: str) -> Callable[[], float] | None:
    if device != "cpu":
        return None
    return time.thread_time if torch.get_num_threads() == 1 else time.process_time
