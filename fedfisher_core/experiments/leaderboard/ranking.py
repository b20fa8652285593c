"""Mean ranks of methods over the settings that they share, and comparisons of methods seed by seed."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.benchmark.rows import Role, Row
from fedfisher_core.experiments.benchmark.summary import Setting
from fedfisher_core.experiments.leaderboard.entries import BenchmarkReport, Entry, name_of
from fedfisher_core.reporting.formats import Table, percent, plural, points
from fedfisher_core.reporting.measure import (
    Measure,
    PairedDifference,
    gather,
    mean_by_seed,
    of_several_seeds,
    paired_difference,
)
from fedfisher_core.reporting.ranks import mean_ranks
from fedfisher_core.settings.reading import nearest


@dataclass(frozen=True)
class OverSeeds:
    """One method compared with another seed by seed: mean accuracies over settings.

    Args:
        num_settings: settings in which both ran with every seed of the setting; those of one seed only where none has
            more.
        difference: of the one less the other, over the seeds that all these settings have.
    """

    other: str
    kind: Role
    num_settings: int
    difference: PairedDifference


@dataclass(frozen=True)
class AboveBest:
    """One method compared with the best other single network of each setting.

    Args:
        dataset: whose settings are compared; None for all.
        num_settings: settings in which both ran with every seed; those of one seed only where none has more.
        difference: of the one less the other, over the seeds that all these settings have.
    """

    dataset: str | None
    num_settings: int
    difference: PairedDifference


@dataclass(frozen=True)
class InReport:
    """One method in the settings of one report.

    Args:
        num_settings: settings in which it ran with every seed.
        num_highest: settings among them in which every other single network has a lower mean.
        nearest: among the single networks that share the most settings with it, the one with the least deficit; None
            where no other ran.
        ensembles: it compared with each ensemble, the nearest first.
    """

    report: str
    num_settings: int
    num_highest: int
    nearest: OverSeeds | None
    ensembles: tuple[OverSeeds, ...]


def over_seeds(entries: Sequence[Entry], labels: Sequence[str]) -> tuple[OverSeeds, ...]:
    """Compare the first of some methods with the others, and with ensembles, in the settings in which both ran.

    Returns:
        One comparison a method, the nearest first.
    """
    single = [one for one in entries if one.kind is Role.ONE_NETWORK and one.method in labels]
    wanted = [one for one in entries if one.kind is Role.ENSEMBLE] + single
    columns = [{one.method: one for one in own} for own in gather(wanted, lambda one: one.setting).values()]
    kinds = {one.method: one.kind for column in columns for one in column.values()}
    first, found = labels[0], []
    for other in kinds.keys() - {first}:
        both = [(column[first], column[other]) for column in columns if first in column and other in column]
        pairs = [
            (one.accuracy_by_seed, another.accuracy_by_seed)
            for one, another in both
            if one.rank is not None and one.accuracy_by_seed.keys() == another.accuracy_by_seed.keys()
        ]
        found += [OverSeeds(other, kinds[other], number, difference) for number, difference in _over_settings(pairs)]
    return tuple(sorted(found, key=lambda one: (one.difference.mean, one.other)))


def above_best(entries: Sequence[Entry], first: str) -> tuple[AboveBest, ...]:
    """Compare a method with the best other single network of each setting: over all settings, then by data set."""
    single = [one for one in entries if one.rank is not None]
    pairs: dict[str | None, list[tuple[Entry, Entry]]] = {None: []}
    for own in gather(single, lambda one: one.setting).values():
        mine = next((one for one in own if one.method == first), None)
        others = [one for one in own if one.method != first]
        if mine is not None and others:
            best = max(others, key=lambda one: one.score)
            for where in (None, mine.dataset):
                pairs.setdefault(where, []).append((mine, best))
    found = []
    for where, chosen in pairs.items():
        by_seed = [(mine.accuracy_by_seed, best.accuracy_by_seed) for mine, best in chosen]
        found += [AboveBest(where, number, difference) for number, difference in _over_settings(by_seed)]
    return tuple(found)


def _over_settings(
    pairs: Sequence[tuple[Mapping[int, float], Mapping[int, float]]],
) -> list[tuple[int, PairedDifference]]:
    """Compare two methods over settings: the number of settings, and the difference; nothing without a common seed."""
    pairs = [pairs[place] for place in of_several_seeds(pairs)]
    difference = paired_difference(*(mean_by_seed(own) for own in zip(*pairs, strict=True))) if pairs else None
    return [] if difference is None else [(len(pairs), difference)]


def in_reports(entries: Sequence[Entry], first: str) -> tuple[InReport, ...]:
    """Compare one method with all others within each report in which it ran, by the report's name.

    Args:
        first: the method's label; it returns a single network.
    """
    found = []
    for report, own in sorted(gather(entries, lambda one: one.report).items()):
        complete = [one for one in own if one.rank is not None]
        settings = [
            {one.method: one.score for one in column} for column in gather(complete, lambda one: one.setting).values()
        ]
        ran = [scores for scores in settings if first in scores]
        if not ran:
            continue
        others = over_seeds(own, [first, *dict.fromkeys(one.method for one in complete if one.method != first)])
        found.append(
            InReport(
                report=report,
                num_settings=len(ran),
                num_highest=sum(
                    all(score < scores[first] for method, score in scores.items() if method != first) for scores in ran
                ),
                nearest=min(
                    (one for one in others if one.kind is Role.ONE_NETWORK),
                    key=lambda one: (-one.num_settings, one.difference.mean),
                    default=None,
                ),
                ensembles=tuple(one for one in others if one.kind is Role.ENSEMBLE),
            )
        )
    return tuple(found)


@dataclass(frozen=True)
class MeanRanks:
    """Mean rank by method, the best first, over the settings in which all of them ran with every seed."""

    ranks: dict[str, float]
    num_settings: int


@dataclass(frozen=True)
class Track:
    """The first method by mean rank of a track, over all reports of the track.

    Args:
        num_settings: settings in which all compared methods ran with every seed.
        over_seeds: the method compared with each other one and each ensemble, in the settings in which both ran with
            every seed, the nearest first.
        above_best: the method compared with the best other of each setting, over all settings and by data set.
    """

    track: str
    first: str
    num_settings: int
    over_seeds: tuple[OverSeeds, ...]
    above_best: tuple[AboveBest, ...]
    in_reports: tuple[InReport, ...]


def comparable_methods(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Choose methods so that their number times the number of their common settings is largest.

    The first is the method that ran in the most settings with every seed. Each next one leaves the most settings in
    which all ran.

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
        # Among several, choose the one that ran in the most settings in all.
        order.append(max(left, key=lambda method: (len(common & places[method]), len(places[method]))))
        common &= places[order[-1]]
        sizes.append(len(order) * len(common))
    return tuple(order[: 1 + sizes.index(max(sizes))]) if order else ()


def mean_ranks_of(entries: Sequence[Entry], methods: Collection[str]) -> MeanRanks:
    """Rank some methods among themselves, and average over the settings in which all ran with every seed.

    Returns:
        The mean ranks (`reporting.ranks.mean_ranks`); none without a common setting.
    """
    labels = sorted(methods)
    columns = _shared(entries, labels)
    if not columns:
        return MeanRanks({}, 0)
    scores = np.array([[column[label].score for label in labels] for column in columns])
    by_rank = sorted(zip(mean_ranks(scores).tolist(), labels, strict=True))
    return MeanRanks({label: rank for rank, label in by_rank}, len(columns))


def compare_tracks(entries: Sequence[Entry]) -> tuple[Track, ...]:
    """Compare the first method of each track with each other one; tracks with a single method are left out."""
    tracks = gather((one for one in entries if one.track is not None), lambda one: str(one.track))
    found = (_compare_track(track, own) for track, own in sorted(tracks.items()))
    return tuple(one for one in found if one is not None)


def _compare_track(track: str, entries: Sequence[Entry]) -> Track | None:
    best = mean_ranks_of(entries, comparable_methods(entries))
    labels = list(best.ranks)
    if len(labels) < 2:
        return None
    first = labels[0]
    return Track(
        track=track,
        first=first,
        num_settings=best.num_settings,
        over_seeds=over_seeds(entries, labels),
        above_best=above_best(entries, first),
        in_reports=in_reports(entries, first),
    )


def _shared(entries: Sequence[Entry], labels: Collection[str]) -> list[dict[str, Entry]]:
    """Find the settings in which all of some single networks ran with every seed, with the entries by label."""
    wanted = [one for one in entries if one.method in labels and one.rank is not None]
    columns = [{one.method: one for one in own} for own in gather(wanted, lambda one: one.setting).values()]
    return [column for column in columns if column.keys() == set(labels)]


@dataclass(frozen=True, eq=False)
class ComparedSetting:
    """Two methods in one setting of a report, over the seeds that both have."""

    report: str
    setting: Setting
    first: dict[int, float]
    second: dict[int, float]

    @property
    def difference(self) -> PairedDifference:
        """Accuracy of the first method less that of the second."""
        found = paired_difference(self.first, self.second)
        assert found is not None
        return found


def common_settings(reports: Iterable[BenchmarkReport], first: str, second: str) -> list[ComparedSetting]:
    """Find the settings in which two methods have a seed in common, in the order of the reports.

    A setting whose results all stand in settings of other reports, with as many seeds or more, counts once.

    Args:
        first: name of a method as the leaderboard has it: its label, with the method where the label does not say it.
        second: the same of the other method.

    Raises:
        InputError: a method is in no report, or the two share no setting and seed.
    """
    named = [(report.name, setting, _by_name(own)) for report in reports for setting, own in report.settings.items()]
    count = plural(len({report for report, _, _ in named}), "report")
    known = {name for _, _, methods in named for name in methods}
    for name in (first, second):
        if name not in known:
            raise InputError(f"method {name!r} is in none of {count}; {nearest(name, known)}")
    if first == second:
        raise InputError(f"method {first!r} is compared with itself; allowed: two methods")
    found: dict[ComparedSetting, set[tuple[str, str]]] = {}
    for report, setting, methods in named:
        ours, others = ({row.seed: row for row in methods.get(name, ())} for name in (first, second))
        if seeds := sorted(ours.keys() & others.keys()):
            both = ({seed: own[seed].accuracy for seed in seeds} for own in (ours, others))
            found[ComparedSetting(report, setting, *both)] = {(ours[at].artifact, others[at].artifact) for at in seeds}
    if not found:
        raise InputError(
            f"methods {first!r} and {second!r} have no setting and seed in common in {count}; allowed: reports in "
            "which both ran"
        )
    return _once(found)


def _by_name(methods: Mapping[str, Sequence[Row]]) -> dict[str, Sequence[Row]]:
    return {name_of(rows[0]): rows for rows in methods.values()}


def _once(found: Mapping[ComparedSetting, set[tuple[str, str]]]) -> list[ComparedSetting]:
    """Leave out settings whose results all stand in others, where these have as many seeds."""
    kept, seen = set[ComparedSetting](), set[tuple[str, str]]()
    for one, results in sorted(found.items(), key=lambda pair: -len(pair[1])):
        if not results <= seen:
            kept.add(one)
            seen |= results
    return [one for one in found if one in kept]


def comparison_tables(compared: list[ComparedSetting], first: str, second: str) -> list[Table]:
    """Write the comparison of every setting, and that of all settings together.

    The interval over all settings is of means over the settings, for the seeds that all of them have.
    """
    lines = [
        [
            one.report,
            one.setting.label,
            *(percent(Measure.of(list(own.values())).mean) for own in (one.first, one.second)),
            *_written(one.difference),
        ]
        for one in compared
    ]
    kept = [compared[place] for place in of_several_seeds([(one.first, one.second) for one in compared])]
    overall = paired_difference(mean_by_seed([one.first for one in kept]), mean_by_seed([one.second for one in kept]))
    mean = Measure.of([one.difference.mean for one in compared]).mean if overall is None else overall.mean
    wins = [sum(sign * one.difference.mean > 0 for one in compared) for sign in (1, -1)]
    summary = [
        ["mean difference, points", points(mean)],
        ["settings of several seeds, over which it is the mean", str(len(compared) if overall is None else len(kept))],
        ["95 % interval over seeds", "-" if overall is None else _written(overall)[1]],
        ["seeds that all settings have", str(0 if overall is None else overall.n)],
        [f"settings in which {first} is higher", str(wins[0])],
        [f"settings in which {second} is higher", str(wins[1])],
        ["settings in which both are equal", str(len(compared) - sum(wins))],
    ]
    header = ("report", "setting", first, second, "difference", "95 % interval", "seeds")
    return [
        Table(f"accuracy of {first} and {second}, %", header, lines, words=2),
        Table(f"{first} less {second} over {plural(len(compared), 'setting')}", ("", "all"), summary),
    ]


def _written(difference: PairedDifference) -> list[str]:
    interval = difference.interval
    bounds = "-" if interval is None else f"{points(interval[0])} to {points(interval[1])}"
    return [points(difference.mean), bounds, str(difference.n)]
