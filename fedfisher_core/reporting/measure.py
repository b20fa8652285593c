"""Quantities over repetitions, and differences between them."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from scipy.special import stdtrit

K = TypeVar("K")

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


@dataclass(frozen=True)
class PairedDifference:
    """Mean difference of a method's accuracy to the baseline's, with the 95 % t confidence interval.

    Args:
        mean: mean over the common seeds, a fraction.
        interval: lower and upper bound; None for a single common seed.
        n: number of common seeds.
    """

    mean: float
    interval: tuple[float, float] | None
    n: int


def paired_difference(ours: Mapping[K, float], baseline: Mapping[K, float]) -> PairedDifference | None:
    """Compare accuracies seed by seed, or whatever else they are repeated over.

    Args:
        ours: accuracy by seed.
        baseline: the baseline's accuracy by seed.

    Returns:
        The mean difference over the common seeds, with its 95 % interval mean ± t(0.975, n - 1) s / sqrt(n);
        None without a common seed.
    """
    differences = [ours[seed] - baseline[seed] for seed in ours if seed in baseline]
    if not differences:
        return None
    measure = Measure.of(differences)
    if measure.deviation is None:
        return PairedDifference(measure.mean, None, measure.n)
    half = float(stdtrit(measure.n - 1, 0.975)) * measure.deviation / math.sqrt(measure.n)
    return PairedDifference(measure.mean, (measure.mean - half, measure.mean + half), measure.n)
