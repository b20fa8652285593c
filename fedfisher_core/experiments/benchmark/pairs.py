"""Every two methods of a benchmark, compared over the seeds of each setting and corrected for their number."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from fedfisher_core.experiments.benchmark.summary import MethodSummary, Setting, SettingSummary
from fedfisher_core.reporting.measure import PairedDifference, gather, paired_difference
from fedfisher_core.reporting.ranks import holm, holm_levels

LEVEL = 0.05
"""Probability of telling any two methods of a page apart that do not differ."""


@dataclass(frozen=True)
class PairTest:
    """What Student's paired test says of two methods, as one of all tests of a page.

    Args:
        p_value: corrected by Holm's procedure.
        interval: of the difference, at the level at which Holm's procedure tests it; it excludes 0 exactly where the
            methods are told apart.
    """

    p_value: float
    interval: tuple[float, float]

    @property
    def told_apart(self) -> bool:
        """Whether the methods differ, by this test."""
        return self.p_value <= LEVEL


@dataclass(frozen=True)
class Pair:
    """Two methods in one setting, seed by seed: the same seed means the same clients.

    Args:
        setting: where they meet.
        higher: label of the method with the higher mean over the common seeds; of those that tie, the first.
        lower: label of the other.
        difference: accuracy of the first above that of the second.
        test: of the difference; None where it has no p-value.
    """

    setting: Setting
    higher: str
    lower: str
    difference: PairedDifference
    test: PairTest | None

    @property
    def told_apart(self) -> bool:
        """Whether a test shows that the methods differ."""
        return self.test is not None and self.test.told_apart

    def other(self, method: str) -> str:
        """The label of the method that one of the two is compared with."""
        return self.lower if self.higher == method else self.higher

    def ahead(self, method: str) -> float:
        """By how much one of the two is above the other, a fraction."""
        return self.difference.mean if self.higher == method else -self.difference.mean

    def shows(self, method: str) -> bool:
        """Whether a test shows one of the two to be above the other."""
        return self.told_apart and self.higher == method


def compare_pairs(summaries: Sequence[SettingSummary]) -> tuple[Pair, ...]:
    """Compare every two methods that make one network, in each setting.

    The family that Holm's procedure corrects for is all tests of all settings.

    Args:
        summaries: the settings of a page.

    Returns:
        The pairs that have a common seed, by setting, then in the order of the methods.
    """
    found = [
        (summary.setting, *_ordered(one, other))
        for summary in summaries
        for one, other in combinations(summary.compared, 2)
        if set(one.seeds) & set(other.seeds)
    ]
    p_values = [difference.p_value for *_, difference in found]
    tested = [p_value for p_value in p_values if p_value is not None]
    corrected = iter(zip(holm(tested), holm_levels(tested, level=LEVEL), strict=True))
    return tuple(
        Pair(setting, higher, lower, difference, test=None if one is None else _test(difference, *next(corrected)))
        for (setting, higher, lower, difference), one in zip(found, p_values, strict=True)
    )


def _test(difference: PairedDifference, p_value: float, level: float) -> PairTest:
    interval = difference.interval_at(level)
    assert interval is not None
    # No difference of accuracies lies beyond.
    return PairTest(p_value, (max(interval[0], -1.0), min(interval[1], 1.0)))


def _ordered(one: MethodSummary, other: MethodSummary) -> tuple[str, str, PairedDifference]:
    first, second = ({row.seed: row.accuracy for row in method.rows} for method in (one, other))
    difference = paired_difference(first, second)
    assert difference is not None
    if difference.mean >= 0:
        return one.method, other.method, difference
    return other.method, one.method, -difference


def wins(pairs: Sequence[Pair], methods: Sequence[str]) -> list[list[int | None]]:
    """Count for every method in how many settings it is shown to be more accurate than every other.

    Args:
        pairs: of a page.
        methods: labels, in the order of the lines and columns.

    Returns:
        A line a method and a column a method; None on the diagonal, and for those that were never tested.
    """
    met = gather([pair for pair in pairs if pair.test is not None], lambda pair: frozenset((pair.higher, pair.lower)))
    return [[_wins(line, met.get(frozenset((line, column)), [])) for column in methods] for line in methods]


def _wins(line: str, met: Sequence[Pair]) -> int | None:
    return sum(pair.shows(line) for pair in met) if met else None
