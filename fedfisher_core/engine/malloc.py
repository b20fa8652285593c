"""Freed memory: kept for the next step, and given back to the system after a job."""

import ctypes
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's `mallopt`."""
_KEPT_BYTES = 2**30


@cache
def keep_freed_memory() -> None:
    """Have glibc keep freed memory until `trim_heap`; elsewhere do nothing.

    By default glibc gives the batch-sized tensors of each training step back, and the system has to clear the same
    pages for the next step.
    """
    if _trim() is not None:
        for parameter in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            ctypes.CDLL(None).mallopt(parameter, _KEPT_BYTES)


def trim_heap() -> None:
    """Have glibc give freed memory back; elsewhere do nothing.

    It keeps a heap for each thread, and each heap grows to the thread's largest job.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@dataclass
class Throttled:
    """Calls an action, unless it did so less than some seconds ago."""

    action: Callable[[], None]
    seconds: float
    _last: float = field(default=-math.inf, init=False)

    def __call__(self) -> None:
        """Call the action, or do nothing."""
        now = time.monotonic()
        if now - self._last >= self.seconds:
            self._last = now
            self.action()


trim_heap_after_job = Throttled(trim_heap, seconds=1.0)
"""If short jobs gave memory back each time, the system would clear the same memory for each next job."""


@cache
def _trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
