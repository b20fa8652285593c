"""Who is the most accurate in each setting of a benchmark, and of whom that can be told."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedfisher_core.experiments.benchmark.pairs import Pair
from fedfisher_core.experiments.benchmark.summary import MethodSummary, Setting, SettingSummary
from fedfisher_core.reporting.measure import gather


@dataclass(frozen=True)
class Lead:
    """The most accurate method of one setting.

    Args:
        setting: the setting.
        top: of the methods that make one network and have the most seeds, the one with the highest mean accuracy.
        pairs: it and each of the others that it shares a seed with, the nearest first.
        untested: labels of the others that no test compares it with: they share fewer than two seeds, or differ by the
            same in each.
    """

    setting: Setting
    top: MethodSummary
    pairs: tuple[Pair, ...]
    untested: tuple[str, ...]

    @property
    def tested(self) -> tuple[Pair, ...]:
        """The pairs with a test."""
        return tuple(pair for pair in self.pairs if pair.test is not None)

    @property
    def nearest(self) -> Pair | None:
        """The pair with the nearest of the methods that ran with the same seeds; None without one."""
        return next((pair for pair in self.pairs if pair.difference.n == len(self.top.seeds)), None)

    @property
    def not_below(self) -> tuple[str, ...]:
        """Labels of the methods that it was tested against and is not shown to be above."""
        return tuple(pair.other(self.top.method) for pair in self.tested if not pair.shows(self.top.method))

    @property
    def leads(self) -> bool:
        """Whether tests show that it is more accurate than each method that it was tested against."""
        return bool(self.tested) and not self.not_below


def find_leads(summaries: Sequence[SettingSummary], pairs: Sequence[Pair]) -> list[Lead]:
    """Find the most accurate method of each setting.

    Args:
        summaries: the settings of a page.
        pairs: all of the page.

    Returns:
        One entry for each setting with a method that makes one network.
    """
    by_setting = gather(pairs, lambda pair: pair.setting)
    return [_lead(summary, by_setting.get(summary.setting, [])) for summary in summaries if summary.compared]


def _lead(summary: SettingSummary, pairs: Sequence[Pair]) -> Lead:
    most = max(len(method.seeds) for method in summary.compared)
    # They are sorted by falling accuracy.
    top = next(method for method in summary.compared if len(method.seeds) == most)
    own = [pair for pair in pairs if top.method in (pair.higher, pair.lower)]
    own.sort(key=lambda pair: pair.ahead(top.method))
    tested = {pair.other(top.method) for pair in own if pair.test is not None}
    return Lead(
        setting=summary.setting,
        top=top,
        pairs=tuple(own),
        untested=tuple(
            method.method for method in summary.compared if method is not top and method.method not in tested
        ),
    )
