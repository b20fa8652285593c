"""Mean ranks of methods over the settings of a benchmark (Demsar 2006)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedfisher_core.experiments.benchmark.summary import MethodSummary, SettingSummary
from fedfisher_core.reporting.measure import DIGITS, PairedDifference, mean_by_seed, paired_difference
from fedfisher_core.reporting.ranks import RankedMethods, critical_difference, friedman_p_value, mean_ranks
from fedfisher_core.reporting.signed_ranks import Ahead, beside_others

_LEAST_FOR_FRIEDMAN = 3


@dataclass(frozen=True)
class BesideFirst:
    """The first method by mean rank beside another.

    Args:
        ahead: setting by setting.
        over_seeds: seed by seed, the mean accuracy over the settings less the other's; None without a common seed.
    """

    ahead: Ahead
    over_seeds: PairedDifference | None


@dataclass(frozen=True)
class Ranking(RankedMethods):
    """Methods by their mean rank over settings, in each of which they are ranked by their mean accuracy.

    Args:
        p_value: of Friedman's test that no method differs; None for two methods.
        left_out: labels of methods that did not run with every seed of every setting.
        beside_first: the first method beside each other one, in their order.
    """

    p_value: float | None
    left_out: tuple[str, ...]
    beside_first: tuple[BesideFirst, ...]


def rank_methods(summaries: Sequence[SettingSummary]) -> Ranking | None:
    """Rank the methods that make one network and ran with every seed of every setting.

    Args:
        summaries: the settings; those without a method that makes one network do not count.

    Returns:
        The ranking; None for fewer than two settings or two such methods.
    """
    columns = [{method.method: method for method in summary.compared} for summary in summaries if summary.compared]
    seeds = [max(len(method.seeds) for method in column.values()) for column in columns]
    labels = sorted({label for column in columns for label in column})
    whole = [
        label
        for label in labels
        if all(
            label in column and len(column[label].seeds) == most for column, most in zip(columns, seeds, strict=True)
        )
    ]
    if len(columns) < 2 or len(whole) < 2:
        return None
    accuracies = np.array([[round(column[label].accuracy.mean, DIGITS) for label in whole] for column in columns])
    found = mean_ranks(accuracies)
    order = sorted(range(len(whole)), key=lambda place: (found[place], whole[place]))
    methods = tuple(whole[place] for place in order)
    return Ranking(
        methods=methods,
        mean_ranks=tuple(float(found[place]) for place in order),
        num_settings=len(columns),
        critical_difference=critical_difference(len(whole), len(columns)),
        p_value=friedman_p_value(accuracies) if len(whole) >= _LEAST_FOR_FRIEDMAN else None,
        left_out=tuple(label for label in labels if label not in whole),
        beside_first=tuple(
            BesideFirst(ahead, _over_seeds(columns, methods[0], ahead.other))
            for ahead in beside_others(accuracies[:, order], methods)
        ),
    )


def _over_seeds(columns: Sequence[Mapping[str, MethodSummary]], one: str, other: str) -> PairedDifference | None:
    """Compare means over the settings, with the seeds that all settings have."""
    return paired_difference(_means(columns, one), _means(columns, other))


def _means(columns: Sequence[Mapping[str, MethodSummary]], label: str) -> dict[int, float]:
    return mean_by_seed([{row.seed: row.accuracy for row in column[label].rows} for column in columns])
