"""The first method of a track beside others, seed by seed."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedfisher_core.experiments.benchmark.roles import Role
from fedfisher_core.leaderboard.entries import Entry
from fedfisher_core.reporting.measure import PairedDifference, gather, mean_by_seed, paired_difference


@dataclass(frozen=True)
class OverSeeds:
    """One method beside another seed by seed: their mean accuracies over settings.

    Args:
        other: label of the other method.
        kind: what that leaves behind.
        num_settings: settings in which both ran with every seed that any method has there.
        difference: of the one less the other, over the seeds that all these settings have.
    """

    other: str
    kind: Role
    num_settings: int
    difference: PairedDifference


@dataclass(frozen=True)
class BesideBest:
    """One method beside the best other single network of each setting, whichever it is.

    Args:
        dataset: whose settings these are; None for all.
        num_settings: settings in which both ran with every seed.
        difference: of the one less the other, over the seeds that all these settings have.
    """

    dataset: str | None
    num_settings: int
    difference: PairedDifference


@dataclass(frozen=True)
class InReport:
    """One method in the settings of one report.

    Args:
        report: name of the report.
        num_settings: settings in which it ran with every seed.
        num_highest: those of them in which no other single network has as high a mean.
        nearest: of the other single networks that share the most settings with it, the one that is the least below it;
            None where no other ran.
        ensembles: it beside each ensemble, the nearest first.
    """

    report: str
    num_settings: int
    num_highest: int
    nearest: OverSeeds | None
    ensembles: tuple[OverSeeds, ...]


def over_seeds(entries: Sequence[Entry], labels: Sequence[str]) -> tuple[OverSeeds, ...]:
    """Compare the first of some methods with the others, and with ensembles, in the settings in which both ran.

    Args:
        entries: of any kind.
        labels: of single networks.

    Returns:
        The first beside each, the nearest first.
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
            if one.rank is not None and one.num_seeds == another.num_seeds
        ]
        difference = paired_difference(*(mean_by_seed(own) for own in zip(*pairs, strict=True))) if pairs else None
        if difference is not None:
            found.append(OverSeeds(other, kinds[other], len(pairs), difference))
    return tuple(sorted(found, key=lambda one: (one.difference.mean, one.other)))


def beside_best(entries: Sequence[Entry], first: str) -> tuple[BesideBest, ...]:
    """Compare a method with the best other single network of each setting.

    Args:
        entries: of any kind.
        first: label of the method.

    Returns:
        Over all settings, then over those of each data set.
    """
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
        ours, theirs = (mean_by_seed([one.accuracy_by_seed for one in own]) for own in zip(*chosen, strict=True))
        difference = paired_difference(ours, theirs)
        if difference is not None:
            found.append(BesideBest(where, len(chosen), difference))
    return tuple(found)


def in_reports(entries: Sequence[Entry], first: str) -> tuple[InReport, ...]:
    """Look at one method in each report by itself, beside all that ran there.

    Args:
        entries: of any kind.
        first: the method's label; it returns a single network.

    Returns:
        The reports in which it ran, by name.
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
