"""Memory that was freed, given back to the system."""

import ctypes
from functools import cache
from typing import Any


def give_back() -> None:
    """Have glibc give back what was freed; elsewhere do nothing.

    It keeps a heap for each thread, and each grows to the largest job that its thread has had.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
