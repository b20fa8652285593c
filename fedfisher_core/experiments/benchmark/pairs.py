"""Every two methods of a benchmark compared over the seeds of one setting, corrected for their number."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from fedfisher_core.experiments.benchmark.summary import MethodSummary, Setting, SettingSummary
from fedfisher_core.reporting.measure import PairedDifference, paired_difference
from fedfisher_core.reporting.ranks import holm

LEVEL = 0.05
"""Probability that tests find a difference between any two methods of a page that do not differ."""


@dataclass(frozen=True)
class Pair:
    """Two methods in one setting, seed by seed: the same seed means the same clients.

    Args:
        higher: label of the method with the higher mean over the common seeds; the first if both tie.
        lower: label of the other.
        difference: accuracy of `higher` less that of `lower`.
        p_value: of Student's paired test, corrected by Holm's procedure for all tests of a page; None without a test.
    """

    setting: Setting
    higher: str
    lower: str
    difference: PairedDifference
    p_value: float | None

    @property
    def differs(self) -> bool:
        """Whether a test shows that the methods differ."""
        return self.p_value is not None and self.p_value <= LEVEL


def compare_pairs(summaries: Sequence[SettingSummary]) -> tuple[Pair, ...]:
    """Compare every two methods that make one network and share a seed, by setting, then in the order of the methods.

    Holm's procedure corrects for all tests of all settings together.
    """
    found = [
        (summary.setting, *_ordered(one, other))
        for summary in summaries
        for one, other in combinations(summary.compared, 2)
        if set(one.seeds) & set(other.seeds)
    ]
    p_values = [difference.p_value for *_, difference in found]
    corrected = iter(holm([p_value for p_value in p_values if p_value is not None]))
    return tuple(
        Pair(setting, higher, lower, difference, p_value=None if p_value is None else next(corrected))
        for (setting, higher, lower, difference), p_value in zip(found, p_values, strict=True)
    )


def _ordered(one: MethodSummary, other: MethodSummary) -> tuple[str, str, PairedDifference]:
    first, second = ({row.seed: row.accuracy for row in method.rows} for method in (one, other))
    difference = paired_difference(first, second)
    assert difference is not None
    if difference.mean >= 0:
        return one.method, other.method, difference
    return other.method, one.method, -difference


@dataclass(frozen=True)
class Decided:
    """What tests show within one setting.

    Args:
        above: for each method that is shown to be more accurate than others, the labels of those.
        tests: how many pairs were tested.
    """

    setting: Setting
    above: dict[str, tuple[str, ...]]
    tests: int


def decided(pairs: Sequence[Pair]) -> list[Decided]:
    """Gather the differences that tests show, by setting; settings without one are left out."""
    found = []
    for setting in dict.fromkeys(pair.setting for pair in pairs):
        own = [pair for pair in pairs if pair.setting == setting]
        shown = [pair for pair in own if pair.differs]
        above = {
            method: tuple(pair.lower for pair in shown if pair.higher == method)
            for method in dict.fromkeys(pair.higher for pair in shown)
        }
        if above:
            found.append(Decided(setting, above, sum(pair.p_value is not None for pair in own)))
    return found
