"""How the benchmarks time things."""

import statistics
import time
from collections.abc import Callable


def alternate(first: Callable[[], object], second: Callable[[], object], *, repeats: int) -> tuple[float, float]:
    """Time two functions in turn, after one warm-up of each, so that a drifting machine hits both.

    Args:
        first: one function.
        second: the other.
        repeats: timed calls of each.

    Returns:
        Median seconds of each.
    """
    first()
    second()
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for function, record in zip((first, second), seconds, strict=True):
            begun = time.perf_counter()
            function()
            record.append(time.perf_counter() - begun)
    return statistics.median(seconds[0]), statistics.median(seconds[1])
