"""Algorithms over rounds: a method, what its clients minimise and its server's optimiser, compared as methods are."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fedfisher_core.experiments.benchmark.rows import RoundPoint, Row
from fedfisher_core.experiments.benchmark.summary import MethodSummary, Setting, SettingSummary
from fedfisher_core.reporting.measure import Measure
from fedfisher_core.settings import AVERAGE, PLAIN


def as_algorithms(rows: Iterable[Row]) -> list[Row]:
    """Make each algorithm of several rounds a method of its own.

    Over rounds, what clients minimise and the server's optimiser are a part of the algorithm. With one seed all
    algorithms have the same clients, first start and cohorts, so that they can be compared as methods are.

    Args:
        rows: of a benchmark.

    Returns:
        The rows in the same order. Those of several rounds are labelled by their algorithm; their setting has plain
        training and the average, which go without saying.
    """
    return [_of_algorithm(row) for row in rows]


def _of_algorithm(row: Row) -> Row:
    setting, label = algorithm_of(Setting.of(row), row.method)
    return replace(row, method=label, objective=setting.objective, server_optimiser=setting.server_optimiser)


def algorithm_of(setting: Setting, method: str) -> tuple[Setting, str]:
    """Tell what a method in a setting is compared as.

    Args:
        setting: where it runs.
        method: its label.

    Returns:
        Over several rounds the setting with plain training and the average, and the method's label with what of
        objective and server optimiser is not these. For one round what was given, as one training serves all methods.
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
        round: its number.
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
    """One algorithm in one setting.

    Args:
        summary: what it had reached in the end, beside the others.
        points: one a round.
    """

    summary: MethodSummary
    points: tuple[Point, ...]

    @property
    def name(self) -> str:
        """Its label."""
        return self.summary.method

    @property
    def last(self) -> Point:
        """The end."""
        return self.points[-1]

    @property
    def seconds(self) -> float:
        """Of clients and server, all rounds, mean over the seeds."""
        return self.summary.measure("client_seconds").mean + self.summary.measure("server_seconds").mean


@dataclass(frozen=True)
class AlgorithmTable:
    """All algorithms of one setting, in the order of its summary.

    Args:
        setting: what they have in common.
        algorithms: one a line.
    """

    setting: Setting
    algorithms: tuple[Algorithm, ...]


def by_algorithm(summaries: Sequence[SettingSummary]) -> list[AlgorithmTable]:
    """Follow algorithms from round to round where there were several.

    Args:
        summaries: the settings of a page, of rows as `as_algorithms` has them.

    Returns:
        One table for each setting of several rounds.
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
