"""A quantity over repetitions."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

BASELINE = "fedavg"
"""The label of the method that differences and bit ratios refer to."""


@dataclass(frozen=True)
class Measure:
    """A quantity over seeds.

    Args:
        mean: mean over the seeds.
        deviation: sample standard deviation (n - 1 in the denominator); None for a single seed.
        n: number of seeds.
    """

    mean: float
    deviation: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Measure":
        """The measure of one value a seed; at least one is needed."""
        deviation = statistics.stdev(values) if len(values) > 1 else None
        return cls(statistics.fmean(values), deviation, len(values))
