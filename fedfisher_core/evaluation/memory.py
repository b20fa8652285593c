"""The working memory of a piece of work: what it holds at its peak beyond what was held before."""

import os
import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from fedfisher_core.heap import give_back

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_CONTAINER = Path("/sys/fs/cgroup/memory.max")


@dataclass(eq=False)  # two measurements may hold equal figures, and each must end as itself
class Peak:
    """A measurement under way.

    Args:
        before: bytes held when it began.
        highest: most bytes held since.
    """

    before: int
    highest: int

    @property
    def bytes(self) -> int:
        """The working memory so far."""
        return max(0, self.highest - self.before)


_lock = threading.Lock()
_under_way: list[Peak] = []


@contextmanager
def working_memory(device: torch.device) -> Iterator[Peak]:
    """Measure the working memory of a block: on a GPU its tensors, otherwise the whole process.

    What runs in other threads of the process at the same time counts too, so that the figure is an upper bound there;
    with `run.workers=1` it is the block's own.

    Args:
        device: where the block computes.

    Yields:
        The measurement, complete after the block.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        peak = Peak(before=torch.cuda.memory_allocated(device), highest=0)
        yield peak
        peak.highest = torch.cuda.max_memory_allocated(device)
        return
    with _lock:
        _note()
        # What is held free would otherwise serve the block without being counted.
        give_back()
        _reset()
        peak = Peak(before=_held(), highest=0)
        _under_way.append(peak)
    try:
        yield peak
    finally:
        with _lock:
            _note()
            _under_way.remove(peak)


@dataclass(frozen=True)
class Load:
    """What is held in memory at once.

    Args:
        said: who holds what, and how much that is.
        bytes: how much.
        remedy: what would hold less.
    """

    said: str
    bytes: int
    remedy: str


def machine_bytes() -> int | None:
    """Memory of this machine, or of the container that this process is in; None where the system does not say."""
    try:
        installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
    try:
        limit = _CONTAINER.read_text().strip()
    except OSError:
        return installed
    return min(installed, int(limit)) if limit.isdigit() else installed


def _note() -> None:
    """Let every measurement under way know the peak so far, before it is set back."""
    highest = _highest()
    for peak in _under_way:
        peak.highest = max(peak.highest, highest)


def _held() -> int:
    """Bytes that the process holds now; without Linux's counters, the most that it ever held."""
    return _counter("VmRSS") if _STATUS.exists() else _most_ever()


def _highest() -> int:
    """Most bytes that the process held since the last reset; without Linux's counters, ever."""
    return _counter("VmHWM") if _STATUS.exists() else _most_ever()


def _reset() -> None:
    if _STATUS.exists():
        _RESET.write_text(_RESET_PEAK)


def _counter(field: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def _most_ever() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
