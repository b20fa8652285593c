"""Mean ranks of methods over the settings that they share."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.leaderboard.entries import Entry
from fedfisher_core.leaderboard.over_seeds import BesideBest, InReport, OverSeeds, beside_best, in_reports, over_seeds
from fedfisher_core.reporting.measure import gather
from fedfisher_core.reporting.ranks import RankedMethods, critical_difference, mean_ranks
from fedfisher_core.reporting.signed_ranks import LEAST_SETTINGS, Ahead, beside_others


@dataclass(frozen=True)
class MeanRanks:
    """Methods over the settings in which all of them ran with every seed.

    Args:
        ranks: mean rank by method, the best first.
        num_settings: number of those settings.
    """

    ranks: dict[str, float]
    num_settings: int


@dataclass(frozen=True)
class TrackRanks:
    """The first method by mean rank of a track, over all of its reports.

    Args:
        track: name of the track.
        reports: names of the reports with the settings that are compared.
        ranked: all methods that are compared, over the settings in which all of them ran with every seed.
        beside: the method beside each other one, by mean rank.
        over_seeds: the method beside each of these and each ensemble in the same settings, the nearest first.
        beside_best: the method beside the best other of each setting, over all of them and over those of a data set.
        in_reports: the method in each report by itself.
    """

    track: str
    reports: tuple[str, ...]
    ranked: RankedMethods
    beside: tuple[Ahead, ...]
    over_seeds: tuple[OverSeeds, ...]
    beside_best: tuple[BesideBest, ...]
    in_reports: tuple[InReport, ...]

    @property
    def first(self) -> str:
        """Label of the method."""
        return self.ranked.methods[0]


def comparable_methods(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Choose the methods that the most ranks can be averaged of.

    The first is the method that ran in the most settings with every seed; the next is always the one that leaves the
    most settings in which all ran. As many are taken as make methods times common settings the largest.

    Args:
        entries: of any kind.

    Returns:
        Labels of single networks, in that order; empty without any.
    """
    places: dict[str, set[tuple[object, ...]]] = {}
    for one in entries:
        if one.rank is not None:
            places.setdefault(one.method, set()).add(one.setting)
    order: list[str] = []
    sizes: list[int] = []
    common = set().union(*places.values())
    while left := sorted(places.keys() - order):
        # Of several, the one that ran in the most settings by itself.
        order.append(max(left, key=lambda method: (len(common & places[method]), len(places[method]))))
        common &= places[order[-1]]
        sizes.append(len(order) * len(common))
    return tuple(order[: 1 + sizes.index(max(sizes))]) if order else ()


def mean_ranks_of(entries: Sequence[Entry], methods: Collection[str]) -> MeanRanks:
    """Rank some methods among themselves, and average over the settings in which all of them ran with every seed.

    Args:
        entries: of any kind.
        methods: labels of single networks.

    Returns:
        The mean ranks (`reporting.ranks.mean_ranks`); none without a common setting.
    """
    labels = sorted(methods)
    scores, _ = _scores(entries, labels)
    if not len(scores):
        return MeanRanks({}, 0)
    by_rank = sorted(zip(mean_ranks(scores).tolist(), labels, strict=True))
    return MeanRanks({label: rank for rank, label in by_rank}, len(scores))


def rank_tracks(entries: Sequence[Entry]) -> tuple[TrackRanks, ...]:
    """Compare the first method of each track with each other one.

    Args:
        entries: of any kind.

    Returns:
        The tracks with enough common settings for a test, by name.
    """
    tracks = gather((one for one in entries if one.track is not None), lambda one: str(one.track))
    found = (_rank_track(track, own) for track, own in sorted(tracks.items()))
    return tuple(one for one in found if one is not None)


def _rank_track(track: str, entries: Sequence[Entry]) -> TrackRanks | None:
    best = mean_ranks_of(entries, comparable_methods(entries))
    labels = list(best.ranks)
    scores, reports = _scores(entries, labels)
    if len(scores) < LEAST_SETTINGS or len(labels) < 2:
        return None
    return TrackRanks(
        track=track,
        reports=reports,
        ranked=RankedMethods(
            methods=tuple(labels),
            mean_ranks=tuple(best.ranks.values()),
            num_settings=best.num_settings,
            critical_difference=critical_difference(len(labels), best.num_settings),
        ),
        beside=beside_others(scores, labels),
        over_seeds=over_seeds(entries, labels),
        beside_best=beside_best(entries, labels[0]),
        in_reports=in_reports(entries, labels[0]),
    )


def _scores(entries: Sequence[Entry], labels: Sequence[str]) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Gather the scores of some methods, shape (settings, methods), and the reports that have all of these."""
    columns = _shared(entries, labels)
    reports = sorted({column[label].report for column in columns for label in labels})
    return np.array([[column[label].score for label in labels] for column in columns]), tuple(reports)


def _shared(entries: Sequence[Entry], labels: Collection[str]) -> list[dict[str, Entry]]:
    """Find the settings in which all of some single networks ran with every seed, and these by label."""
    wanted = [one for one in entries if one.method in labels and one.rank is not None]
    columns = [{one.method: one for one in own} for own in gather(wanted, lambda one: one.setting).values()]
    return [column for column in columns if column.keys() == set(labels)]
