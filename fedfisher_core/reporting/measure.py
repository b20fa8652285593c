"""Quantities over repetitions, and differences between them."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from scipy.special import stdtr, stdtrit

K = TypeVar("K")
R = TypeVar("R")
T = TypeVar("T")

BASELINE = "fedavg"
"""The label of the method that differences and bit ratios refer to."""

DIGITS = 12
"""Accuracies, their means and their differences are compared to as many: sums in another order differ in the last bit,
and what differs by no more is a tie."""


def gather(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Gather items that have the same key.

    Args:
        items: in any order.
        key: of an item.

    Returns:
        Items by key, both in the order in which they come.
    """
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def with_most_seeds(counts: Mapping[K, int]) -> list[K]:
    """Choose whose means can be compared: means over other seeds may differ by the seeds alone.

    Args:
        counts: numbers of seeds.

    Returns:
        Those that have the most, in their order.
    """
    most = max(counts.values(), default=0)
    return [key for key, count in counts.items() if count == most]


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

    def percent(self) -> str:
        """Write a fraction in per cent, with its deviation if there is one."""
        deviation = "" if self.deviation is None else f" ± {100 * self.deviation:5.2f}"
        return f"{100 * self.mean:.2f}{deviation}"


@dataclass(frozen=True)
class Repeated(Generic[R]):
    """Result rows that differ in their seeds alone, or in whatever else a thing is repeated over.

    Args:
        rows: at least one.
    """

    rows: Sequence[R]

    @property
    def row(self) -> R:
        """The first row, for what all have in common."""
        return self.rows[0]

    def values(self, field: str) -> list[float]:
        """The numbers of one field; those that are None are left out."""
        return [value for row in self.rows if (value := getattr(row, field)) is not None]

    def measure(self, field: str) -> Measure:
        """Mean and deviation of one field that is not None everywhere."""
        return Measure.of(self.values(field))

    def means(self, names: Iterable[str]) -> dict[str, float]:
        """Means and deviations of several fields, as MLflow records them.

        Args:
            names: of the fields; those that are None everywhere are left out.

        Returns:
            Each mean under its field's name, each deviation that there is under NAME_deviation.
        """
        found = {name: Measure.of(values) for name in names if (values := self.values(name))}
        deviations = {f"{name}_deviation": one.deviation for name, one in found.items() if one.deviation is not None}
        return {name: one.mean for name, one in found.items()} | deviations


@dataclass(frozen=True)
class PairedDifference:
    """Mean of accuracies less others that are paired with them by seed, or by whatever else they are repeated over.

    Args:
        mean: mean difference over the common seeds, a fraction.
        deviation: sample standard deviation of the differences; None for a single common seed.
        n: number of common seeds.
    """

    mean: float
    deviation: float | None
    n: int

    def __neg__(self) -> "PairedDifference":
        return PairedDifference(-self.mean, self.deviation, self.n)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % confidence interval; see `interval_at`."""
        return self.interval_at(0.05)

    def interval_at(self, level: float) -> tuple[float, float] | None:
        """Find Student's interval mean ± t(1 - level / 2, n - 1) s / sqrt(n).

        Args:
            level: probability that it misses the true difference.

        Returns:
            Lower and upper bound, both 0 for what is equal in all seeds; None for a single common seed, and for any
            other difference that is the same in all seeds: how much others would scatter can't be told from it.
        """
        if not self._varies:
            return (0.0, 0.0) if self._vanishes else None
        assert self.deviation is not None
        half = float(stdtrit(self.n - 1, 1 - level / 2)) * self.deviation / math.sqrt(self.n)
        return self.mean - half, self.mean + half

    @property
    def p_value(self) -> float | None:
        """Of Student's paired test, two-sided, for a true difference of 0; None where there is no interval."""
        if not self._varies:
            return 1.0 if self._vanishes else None
        assert self.deviation is not None
        return 2 * float(stdtr(self.n - 1, -abs(self.mean) * math.sqrt(self.n) / self.deviation))

    @property
    def _varies(self) -> bool:
        return self.deviation is not None and self.deviation > 10**-DIGITS

    @property
    def _vanishes(self) -> bool:
        """Whether there is no difference in any of several seeds."""
        return self.n > 1 and self.mean == 0


def mean_by_seed(settings: Sequence[Mapping[K, float]]) -> dict[K, float]:
    """Average accuracies over settings, seed by seed.

    Args:
        settings: accuracy by seed, or by whatever else they are repeated over, in each setting.

    Returns:
        The mean by seed, of the seeds that all settings have.
    """
    by_seed = gather((pair for setting in settings for pair in setting.items()), lambda pair: pair[0])
    return {
        seed: statistics.fmean(accuracy for _, accuracy in pairs)
        for seed, pairs in by_seed.items()
        if len(pairs) == len(settings)
    }


def paired_difference(ours: Mapping[K, float], others: Mapping[K, float]) -> PairedDifference | None:
    """Compare accuracies seed by seed, or whatever else they are repeated over.

    Args:
        ours: accuracy by seed.
        others: what is subtracted, by seed.

    Returns:
        The difference over the common seeds; None without one.
    """
    differences = [ours[seed] - others[seed] for seed in ours if seed in others]
    if not differences:
        return None
    measure = Measure.of(differences)
    return PairedDifference(round(measure.mean, DIGITS), measure.deviation, measure.n)
