"""Quantities over repetitions, differences between them, and equivalence of means."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from scipy.special import stdtr, stdtrit

from fedfisher_core.engine.errors import InputError

K = TypeVar("K")
R = TypeVar("R")
T = TypeVar("T")

BASELINE = "fedavg"
"""The label of the method that differences and bit ratios refer to."""

DIGITS = 12
"""Accuracies, their means and differences are compared to this many digits. Sums in another order differ in the last
bit; they must tie."""


def gather(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Gather items that have the same key; keys and items keep their order."""
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def with_most_seeds(counts: Mapping[K, int]) -> list[K]:
    """Choose those with the most seeds, in their order; other means may differ only because their seeds do."""
    most = max(counts.values(), default=0)
    return [key for key, count in counts.items() if count == most]


@dataclass(frozen=True)
class Measure:
    """A quantity over seeds.

    Args:
        deviation: sample standard deviation (n - 1 in the denominator); None for a single seed.
    """

    mean: float
    deviation: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Measure":
        """Summarise one value a seed, at least one."""
        deviation = statistics.stdev(values) if len(values) > 1 else None
        return cls(statistics.fmean(values), deviation, len(values))

    def percent(self) -> str:
        """Write a fraction in per cent, with its deviation if there is one."""
        deviation = "" if self.deviation is None else f" ± {100 * self.deviation:5.2f}"
        return f"{100 * self.mean:.2f}{deviation}"


@dataclass(frozen=True)
class Repeated(Generic[R]):
    """Result rows that differ only in their seeds, or in another thing that is repeated; at least one."""

    rows: Sequence[R]

    @property
    def row(self) -> R:
        """The first row, for what all rows have in common."""
        return self.rows[0]

    def values(self, field: str) -> list[float]:
        """The numbers of one field, without those that are None."""
        return [value for row in self.rows if (value := getattr(row, field)) is not None]

    def measure(self, field: str) -> Measure:
        """Mean and deviation of one field that is not None everywhere."""
        return Measure.of(self.values(field))

    def means(self, names: Iterable[str]) -> dict[str, float]:
        """Means and deviations of several fields, as MLflow records them.

        A mean has its field's name, a deviation the name NAME_deviation. Fields that are None everywhere are left out.
        """
        found = {name: Measure.of(values) for name in names if (values := self.values(name))}
        deviations = {f"{name}_deviation": one.deviation for name, one in found.items() if one.deviation is not None}
        return {name: one.mean for name, one in found.items()} | deviations


@dataclass(frozen=True)
class PairedDifference:
    """Mean of accuracies less others that are paired with them, by seed or by another repetition.

    Args:
        mean: over the common seeds, a fraction.
        deviation: sample standard deviation of the differences; None for a single common seed.
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
            Lower and upper bound, both 0 for what is equal in all seeds. None for a single common seed, and for any
            other difference that is the same in all seeds, since it does not show how much others would scatter.
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
        """Whether there are several seeds, and no difference in any of them."""
        return self.n > 1 and self.mean == 0


def mean_by_seed(settings: Sequence[Mapping[K, float]]) -> dict[K, float]:
    """Average accuracies over settings, seed by seed, for the seeds that all settings have.

    Args:
        settings: accuracy by seed, or by another repetition, in each setting.
    """
    by_seed = gather((pair for setting in settings for pair in setting.items()), lambda pair: pair[0])
    return {
        seed: statistics.fmean(accuracy for _, accuracy in pairs)
        for seed, pairs in by_seed.items()
        if len(pairs) == len(settings)
    }


def of_several_seeds(pairs: Sequence[tuple[Mapping[K, float], Mapping[K, float]]]) -> list[int]:
    """Choose settings in which two methods have several seeds in common; all, where each has one at most.

    A setting of one seed would leave no other seed to any setting in a mean over settings.

    Args:
        pairs: accuracies by seed of both methods, in each setting.

    Returns:
        The places of the settings.
    """
    return [place for place, (ours, others) in enumerate(pairs) if len(ours.keys() & others.keys()) > 1] or list(
        range(len(pairs))
    )


_MOST_CANDIDATES = 1000
"""Sets of seeds that are tried; a dozen settings that each lack another seed have more."""


def of_most_runs(pairs: Sequence[tuple[Mapping[K, float], Mapping[K, float]]]) -> list[int]:
    """Choose the settings whose common seeds give a mean over settings the most runs; the more seeds where two tie.

    A setting that lacks a seed would leave that seed out of all settings. To leave out the setting instead may leave
    out what speaks against a method. So neither is done more than it must be. Several seeds come before one.

    Args:
        pairs: accuracies by seed of both methods, in each setting.

    Returns:
        The places of the settings.
    """
    shared = {place: frozenset(pairs[place][0].keys() & pairs[place][1].keys()) for place in of_several_seeds(pairs)}
    # In the order of the settings, so that of two that tie the same is always chosen.
    candidates = dict.fromkeys(shared.values())
    while len(candidates) < _MOST_CANDIDATES:
        further = [both for one in candidates for own in shared.values() if (both := one & own) not in candidates]
        if not further:
            break
        candidates |= dict.fromkeys(further)

    def having(seeds: frozenset[K]) -> list[int]:
        return [place for place, own in shared.items() if seeds <= own]

    def runs(seeds: frozenset[K]) -> tuple[bool, int, int]:
        return len(seeds) > 1, len(seeds) * len(having(seeds)), len(seeds)

    return having(max(candidates, key=runs, default=frozenset()))


def paired_difference(ours: Mapping[K, float], others: Mapping[K, float]) -> PairedDifference | None:
    """Subtract accuracies seed by seed, or by another repetition; None without a common seed.

    Args:
        others: what is subtracted, by seed.
    """
    differences = [ours[seed] - others[seed] for seed in ours if seed in others]
    if not differences:
        return None
    measure = Measure.of(differences)
    return PairedDifference(round(measure.mean, DIGITS), measure.deviation, measure.n)


@dataclass(frozen=True)
class WelchDifference:
    """The difference of two independent means, whose deviations may differ (Welch 1947).

    Args:
        mean: of the first less the second.
        error: standard error of the difference.
        degrees: of freedom, by Welch and Satterthwaite.
    """

    mean: float
    error: float
    degrees: float

    @classmethod
    def of(cls, first: Measure, second: Measure) -> "WelchDifference":
        """Subtract the second measure from the first.

        Raises:
            InputError: one has no deviation.
        """
        if first.deviation is None or second.deviation is None:
            raise InputError("a mean without a deviation can't be tested; allowed: at least two repetitions of each")
        terms = [one**2 / n for one, n in ((first.deviation, first.n), (second.deviation, second.n))]
        total = sum(terms)
        # Where nothing varies, any number of degrees gives the same answers.
        spread = sum(term**2 / (n - 1) for term, n in zip(terms, (first.n, second.n), strict=True))
        degrees = total**2 / spread if spread else 1.0
        return cls(first.mean - second.mean, math.sqrt(total), degrees)

    def interval(self, level: float) -> tuple[float, float]:
        """Find the interval that misses the true difference with a probability of `level`."""
        half = float(stdtrit(self.degrees, 1 - level / 2)) * self.error
        return self.mean - half, self.mean + half

    def p_equivalent(self, margin: float) -> float:
        """Test that the true difference lies within a margin, by two one-sided tests (Schuirmann 1987).

        Args:
            margin: largest difference that does not matter, above 0.

        Returns:
            The larger of the p-values of "no larger than -margin" and "no smaller than margin".
        """
        return max(self._below(-(self.mean + margin)), self._below(self.mean - margin))

    def p_beyond(self, margin: float) -> float:
        """Test that the true difference lies beyond a margin, on either side.

        Args:
            margin: largest difference that does not matter, above 0.

        Returns:
            The p-value of "within the margin": the probability of a mean as far beyond, on either side, where the true
            difference is the margin.
        """
        return min(1.0, self._below(margin - abs(self.mean)) + self._below(-margin - abs(self.mean)))

    def _below(self, distance: float) -> float:
        """Probability that an error is as far below 0 as `distance` is."""
        if self.error == 0:
            return float(distance >= 0)
        return float(stdtr(self.degrees, distance / self.error))
