"""The working memory of a piece of work: the peak of what it holds, beyond what was held before."""

import os
import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from fedfisher_core.engine.malloc import trim_heap

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_CONTAINER = Path("/sys/fs/cgroup/memory.max")


@dataclass(eq=False)  # two measurements may hold equal figures, and each must end as itself
class Peak:
    """A measurement in progress.

    Args:
        before: bytes held at its beginning.
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

    The result is complete after the block. It is an upper bound in two cases. Other threads of the process count too,
    so it is exact only with `run.workers=1`. And without all of Linux's counters, as on macOS, it is all that the
    process ever held.

    Args:
        device: where the block computes.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        peak = Peak(before=torch.cuda.memory_allocated(device), highest=0)
        yield peak
        peak.highest = torch.cuda.max_memory_allocated(device)
        return
    with _lock:
        _note()
        # Otherwise the block would use free memory that the process holds, and it would not be counted.
        trim_heap()
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
    """Memory that is held at once.

    Args:
        said: what is held, by which part, and how many bytes that is.
        remedy: a change of settings that needs less.
    """

    said: str
    bytes: int
    remedy: str


def machine_bytes() -> int | None:
    """Memory of this machine, or of the container of this process; None if the system does not say."""
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
    """Update every measurement in progress with the peak so far, before it is reset."""
    highest = _highest()
    for peak in _under_way:
        peak.highest = max(peak.highest, highest)


def _held() -> int:
    """Bytes that the process holds now; 0 if the system does not say, so that the result is an upper bound."""
    return _counter("VmRSS") or 0


def _highest() -> int:
    """Most bytes that the process held since the last reset, or ever if there is no reset."""
    return _counter("VmHWM") or most_ever_held()


def _reset() -> None:
    # If the system has no such file, or does not allow writing to it, earlier peaks count: an upper bound.
    with suppress(OSError):
        _RESET.write_text(_RESET_PEAK)


def _counter(field: str) -> int | None:
    """One of Linux's counters; None without its file, as on macOS, or without its line, as in some sandboxes."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), None)


def most_ever_held() -> int:
    """Most bytes that this process held at any time."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
