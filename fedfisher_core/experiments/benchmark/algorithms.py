"""Algorithms over several rounds, and each method by what its clients minimise."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fedfisher_core.experiments.benchmark.rows import RoundPoint, Row, Seconds
from fedfisher_core.experiments.benchmark.summary import MethodSummary, Setting, SettingSummary, overview
from fedfisher_core.reporting.measure import (
    DIGITS,
    Measure,
    PairedDifference,
    gather,
    mean_by_seed,
    paired_difference,
    with_most_seeds,
)
from fedfisher_core.settings import AVERAGE, PLAIN


def as_algorithms(rows: Iterable[Row]) -> list[Row]:
    """Label each row of several rounds by its algorithm, so that algorithms are compared as methods are.

    Over rounds, objective and server optimiser are a part of the algorithm. With one seed all algorithms have the same
    clients, first start and cohorts. The setting of such a row has plain training and the average.
    """
    return [_of_algorithm(row) for row in rows]


def _of_algorithm(row: Row) -> Row:
    setting, label = algorithm_of(Setting.of(row), row.method)
    return replace(row, method=label, objective=setting.objective, server_optimiser=setting.server_optimiser)


def algorithm_of(setting: Setting, method: str) -> tuple[Setting, str]:
    """Find the setting and the label under which a method is compared.

    Over several rounds the label names objective and server optimiser where these are not plain training and the
    average, and the setting has those. For one round both stay as they are, since one training serves all methods.
    """
    if setting.num_rounds == 1:
        return setting, method
    objective = [] if setting.objective == PLAIN else [setting.objective]
    optimiser = [] if setting.server_optimiser == AVERAGE else [setting.server_optimiser]
    common = replace(setting, objective=PLAIN, server_optimiser=AVERAGE)
    return common, ", ".join([method, *objective, *optimiser])


@dataclass(frozen=True)
class Point:
    """What an algorithm had reached after a round, over its seeds.

    Args:
        round: from 1.
        accuracy: over the seeds, a fraction.
        upload_bits: of all clients until then, mean over the seeds.
        bits: sent in both directions until then, mean over the seeds.
    """

    round: int
    accuracy: Measure
    upload_bits: float
    bits: float


@dataclass(frozen=True)
class Algorithm:
    """One algorithm in one setting: what it had reached after the last round, and after each."""

    summary: MethodSummary
    points: tuple[Point, ...]

    @property
    def name(self) -> str:
        """Its label."""
        return self.summary.method

    @property
    def last(self) -> Point:
        """After the last round."""
        return self.points[-1]

    def takes(self, seconds: Seconds) -> float:
        """Seconds of clients and server in all rounds, mean over the seeds."""
        return self.summary.measure(seconds.client).mean + self.summary.measure(seconds.server).mean


@dataclass(frozen=True)
class AlgorithmTable:
    """All algorithms of one setting, in the order of its summary."""

    setting: Setting
    algorithms: tuple[Algorithm, ...]


def by_algorithm(summaries: Sequence[SettingSummary]) -> list[AlgorithmTable]:
    """Follow algorithms from round to round, for each setting of several rounds.

    Args:
        summaries: of rows that went through `as_algorithms`.
    """
    return [
        AlgorithmTable(summary.setting, tuple(_algorithm(method) for method in summary.methods))
        for summary in summaries
        if summary.setting.num_rounds > 1
    ]


def _algorithm(method: MethodSummary) -> Algorithm:
    curves = [row.curve for row in method.rows]
    return Algorithm(method, tuple(_point(points) for points in zip(*curves, strict=True)))


def _point(points: Sequence[RoundPoint]) -> Point:
    count = len(points)
    return Point(
        round=points[0].round,
        accuracy=Measure.of([point.accuracy for point in points]),
        upload_bits=sum(point.upload_bits for point in points) / count,
        bits=sum(point.upload_bits + point.download_bits for point in points) / count,
    )


@dataclass(frozen=True)
class ObjectiveCell:
    """One method with one objective.

    Args:
        accuracy: over the seeds, a fraction.
        difference: accuracy less that of plain training, paired by seed; None for plain training and without it.
        best: whether no other objective gives the method a higher mean.
    """

    accuracy: Measure
    difference: PairedDifference | None
    best: bool


@dataclass(frozen=True)
class ObjectiveTable:
    """Settings that differ only in their objective, or the mean over several such groups.

    Args:
        objectives: their labels, the plain one first.
        lines: the methods, by role and then by falling accuracy, with one entry an objective; None where a method has
            no rows.
    """

    title: str
    objectives: tuple[str, ...]
    lines: tuple[tuple[str, tuple[ObjectiveCell | None, ...]], ...]


def by_objective(summaries: Sequence[SettingSummary]) -> list[ObjectiveTable]:
    """Compare objectives in each group of settings that differ only in their objective.

    Of several tables, the first is the mean over all groups, for the methods and objectives that all groups have.

    Args:
        summaries: in the order of `sorted_rows`.
    """
    groups = gather(summaries, lambda summary: replace(summary.setting, objective=PLAIN))
    several = {setting: own for setting, own in groups.items() if len(own) > 1}
    tables = [_table(setting.label, [own]) for setting, own in several.items()]
    if len(several) < 2:
        return tables
    whole = _table(f"mean over {len(several)} settings", list(several.values()))
    return [whole, *tables] if whole.lines and len(whole.objectives) > 1 else tables


def _table(title: str, groups: Sequence[Sequence[SettingSummary]]) -> ObjectiveTable:
    """Compare objectives in the mean over groups; of several groups, only what all have is shown."""
    columns = [{summary.setting.objective: summary for summary in own} for own in groups]
    labels = tuple(label for label in columns[0] if all(label in column for column in columns))
    lines = []
    for line in overview([column[label] for column in columns for label in labels]):
        cells = _cells(line.method, [[column[label] for column in columns] for label in labels], labels)
        if len(groups) == 1 or None not in cells:
            lines.append((line.method, cells))
    return ObjectiveTable(title, labels, tuple(lines))


def _cells(
    method: str, settings: Sequence[Sequence[SettingSummary]], labels: Sequence[str]
) -> tuple[ObjectiveCell | None, ...]:
    """Compare one method's objectives, given the settings of each objective."""
    found = {label: _by_seed(method, own) for label, own in zip(labels, settings, strict=True)}
    measures = {label: Measure.of(list(by_seed.values())) for label, by_seed in found.items() if by_seed}
    whole = with_most_seeds({label: measure.n for label, measure in measures.items()})
    top = max((measures[label].mean for label in whole), default=0.0)
    plain = found.get(PLAIN, {})
    return tuple(
        ObjectiveCell(
            accuracy=measures[label],
            difference=None if label == PLAIN else paired_difference(found[label], plain),
            best=label in whole and round(measures[label].mean - top, DIGITS) == 0,
        )
        if label in measures
        else None
        for label in labels
    )


def _by_seed(method: str, settings: Sequence[SettingSummary]) -> dict[int, float]:
    """Average a method's accuracy over settings, seed by seed; empty where it did not run in all."""
    own = [one for summary in settings for one in summary.methods if one.method == method]
    if len(own) < len(settings):
        return {}
    return mean_by_seed([{row.seed: row.accuracy for row in one.rows} for one in own])
