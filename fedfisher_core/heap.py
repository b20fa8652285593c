"""Memory that was freed: kept for what comes next, and given back to the system after a job."""

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
def keep_freed() -> None:
    """Have glibc keep what is freed until it is given back; elsewhere do nothing.

    By itself it gives the batch-sized tensors of one step of training back, and the system has to clear the same pages
    for the next step.
    """
    if _trim() is not None:
        for parameter in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            ctypes.CDLL(None).mallopt(parameter, _KEPT_BYTES)


def give_back() -> None:
    """Have glibc give back what was freed; elsewhere do nothing.

    It keeps a heap for each thread, and each grows to the largest job that its thread has had.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@dataclass
class Paced:
    """Does something when it is called, unless it did so a moment ago.

    Args:
        action: what it does.
        seconds: from one time to the next.
    """

    action: Callable[[], None]
    seconds: float
    _last: float = field(default=-math.inf, init=False)

    def __call__(self) -> None:
        """Do it, or nothing."""
        now = time.monotonic()
        if now - self._last >= self.seconds:
            self._last = now
            self.action()


give_back_after_job = Paced(give_back, seconds=1.0)
"""Short jobs that gave back each time would have the system clear the same memory for the next one."""


@cache
def _trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
