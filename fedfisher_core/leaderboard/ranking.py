"""Mean ranks of methods over the settings that they share."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from fedfisher_core.leaderboard.entries import Entry, Kind
from fedfisher_core.reporting.ranks import mean_ranks


@dataclass(frozen=True)
class MeanRanks:
    """Methods over the settings in which all of them ran.

    Args:
        ranks: mean rank by method, the best first.
        num_settings: number of those settings.
    """

    ranks: dict[str, float]
    num_settings: int


def comparable_methods(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Choose the methods that the most ranks can be averaged of.

    Methods are taken in the order of how many settings they ran in, the most first, as long as methods times common
    settings is the largest.

    Args:
        entries: of any kind.

    Returns:
        Labels of single networks, in that order; empty without any.
    """
    places: dict[str, set[tuple[object, ...]]] = {}
    for one in entries:
        if one.kind is Kind.SINGLE:
            places.setdefault(one.method, set()).add(one.setting)
    order = sorted(places, key=lambda method: (-len(places[method]), method))
    sizes = [
        count * len(set.intersection(*(places[method] for method in order[:count])))
        for count in range(1, len(order) + 1)
    ]
    return tuple(order[: 1 + sizes.index(max(sizes))]) if order else ()


def mean_ranks_of(entries: Sequence[Entry], methods: Collection[str]) -> MeanRanks:
    """Rank some methods among themselves, and average over the settings in which all of them ran.

    Args:
        entries: of any kind.
        methods: labels of single networks.

    Returns:
        The mean ranks (`reporting.ranks.mean_ranks`); none without a common setting.
    """
    scores: dict[tuple[object, ...], dict[str, float]] = {}
    for one in entries:
        if one.kind is Kind.SINGLE and one.method in methods:
            scores.setdefault(one.setting, {})[one.method] = one.score
    whole = [found for found in scores.values() if len(found) == len(methods)]
    if not whole:
        return MeanRanks({}, 0)
    labels = sorted(methods)
    found = mean_ranks(np.array([[own[label] for label in labels] for own in whole]))
    by_rank = sorted(zip(found.tolist(), labels, strict=True))
    return MeanRanks({label: rank for rank, label in by_rank}, len(whole))
