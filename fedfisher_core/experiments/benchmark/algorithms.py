"""Algorithms over rounds: a method, what its clients minimise and its server's optimiser, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedfisher_core.experiments.benchmark.rows import RoundPoint, Row
from fedfisher_core.experiments.benchmark.summary import MethodSummary, Setting, SettingSummary
from fedfisher_core.reporting.measure import Measure, PairedDifference, gather, paired_difference
from fedfisher_core.settings import AVERAGE, PLAIN


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
        name: of method, objective and server optimiser, those that go without saying left out.
        points: one a round.
        difference: last accuracy less that of plain FedAvg, paired by seed; None for itself, and without it.
        best: whether no other algorithm has a higher mean in the end.
        seconds: of clients and server, all rounds, mean over the seeds.
    """

    name: str
    points: tuple[Point, ...]
    difference: PairedDifference | None
    best: bool
    seconds: float

    @property
    def last(self) -> Point:
        """The end."""
        return self.points[-1]


@dataclass(frozen=True)
class AlgorithmTable:
    """All algorithms of settings that differ in objective and server optimiser alone; by falling accuracy.

    Args:
        setting: what they have in common.
        algorithms: one a line.
    """

    setting: Setting
    algorithms: tuple[Algorithm, ...]


def by_algorithm(summaries: Sequence[SettingSummary]) -> list[AlgorithmTable]:
    """Set algorithms beside each other where there were several rounds.

    Args:
        summaries: the settings of a page.

    Returns:
        One table for each group of settings that differ in their objective and server optimiser alone.
    """
    several = [summary for summary in summaries if summary.setting.num_rounds > 1]
    groups = gather(several, lambda one: replace(one.setting, objective=PLAIN, server_optimiser=AVERAGE))
    return [_table(setting, own) for setting, own in groups.items()]


def algorithm_name(row: Row) -> str:
    """Name a row's algorithm: its method, and what of objective and server optimiser is not the default."""
    objective = [] if row.objective == PLAIN else [row.objective]
    optimiser = [] if row.server_optimiser == AVERAGE else [row.server_optimiser]
    return ", ".join([row.method, *objective, *optimiser])


def _table(setting: Setting, summaries: Sequence[SettingSummary]) -> AlgorithmTable:
    methods = [one for summary in summaries for one in summary.methods]
    plain = next((one for one in methods if algorithm_name(one.row) == "fedavg"), None)
    top = max(one.accuracy.mean for one in methods)
    algorithms = [_algorithm(one, plain, top) for one in methods]
    return AlgorithmTable(setting, tuple(sorted(algorithms, key=lambda one: (-one.last.accuracy.mean, one.name))))


def _algorithm(method: MethodSummary, plain: MethodSummary | None, top: float) -> Algorithm:
    compared = None if plain is None or method is plain else paired_difference(_by_seed(method), _by_seed(plain))
    curves = [row.curve for row in method.rows]
    return Algorithm(
        name=algorithm_name(method.row),
        points=tuple(_point(points) for points in zip(*curves, strict=True)),
        difference=compared,
        best=method.accuracy.mean == top,
        seconds=method.measure("client_seconds").mean + method.measure("server_seconds").mean,
    )


def _point(points: Sequence[RoundPoint]) -> Point:
    count = len(points)
    return Point(
        round=points[0].round,
        accuracy=Measure.of([point.accuracy for point in points]),
        upload_bits=sum(point.upload_bits for point in points) / count,
        bits=sum(point.upload_bits + point.download_bits for point in points) / count,
    )


def _by_seed(method: MethodSummary) -> dict[int, float]:
    return {row.seed: row.accuracy for row in method.rows}
