"""How much more, or less, one case gives away than another."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedfisher_core.experiments.attack.rows import AttackRow, Summary, summarise
from fedfisher_core.reporting.measure import PairedDifference, paired_difference


@dataclass(frozen=True)
class Finding:
    """The attack accuracies of two cases, pair by pair of target label and seed.

    Args:
        more: the case that is said to give away more.
        less: the other.
        difference: attack accuracy of `more` above that of `less`, a fraction.
    """

    more: str
    less: str
    difference: PairedDifference


def compare_cases(rows: Sequence[AttackRow]) -> list[Finding]:
    """Compare every two cases of one data set, network and privacy budget.

    Args:
        rows: the results; where methods share a case, so do their attacks, and the first stands for them.

    Returns:
        A finding for each pair of cases, the case with the higher mean first.
    """
    cases: dict[str, Summary] = {}
    for summary in summarise(rows):
        if not summary.reference:
            cases.setdefault(summary.case, summary)
    ordered = sorted(cases.values(), key=_mean, reverse=True)
    findings = []
    for place, more in enumerate(ordered):
        for less in ordered[place + 1 :]:
            difference = paired_difference(_by_trial(more), _by_trial(less))
            if difference is not None:
                findings.append(Finding(more=more.case, less=less.case, difference=difference))
    return findings


def _mean(summary: Summary) -> float:
    return sum(summary.values("attack_accuracy")) / len(summary.rows)


def _by_trial(summary: Summary) -> dict[tuple[int, int], float]:
    return {(row.target_label, row.seed): row.attack_accuracy for row in summary.rows}
