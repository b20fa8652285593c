"""Our rows next to published numbers: which row of which report, and where our number stands."""

import math
import statistics
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

import yaml

from fedfisher_core.experiments.benchmark.published import Metric, PublishedResult, federation_of, is_comparable
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.leaderboard.entries import BenchmarkReport
from fedfisher_core.reporting.measure import DIGITS, Measure, gather


class Standing(StrEnum):
    """Where our number stands."""

    WITHIN_ONE = "within one deviation"
    WITHIN_TWO = "within two"
    BEYOND = "beyond two"
    ONE_SEED = "one seed here, and so no deviation of ours"
    SECONDS = "seconds, of another machine"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class StandIn:
    """A row that stands for a method of a paper although it has another label.

    Args:
        row: its label.
        instead: what the paper says, and why this row is compared instead.
    """

    source: str
    method: str
    row: str
    instead: str


@dataclass(frozen=True)
class Ours:
    """Our rows for a published number.

    Args:
        report: name of the report.
        rows: one a seed, of one method in one setting, at least one.
    """

    report: str
    rows: Sequence[Row]


@dataclass(frozen=True)
class Cell:
    """A published number, and what is known of it here.

    Args:
        ours: our rows; empty where there are none.
    """

    published: PublishedResult
    ours: Sequence[Ours]

    @property
    def measure(self) -> Measure | None:
        """Our number over the seeds, or the mean of our seconds over seeds and alphas; None without rows."""
        values = [getattr(row, self.published.metric) for one in self.ours for row in one.rows]
        if not values:
            return None
        if self.published.metric is Metric.ACCURACY:
            return Measure.of(values)
        return Measure(statistics.fmean(values), None, len(values))

    @property
    def difference(self) -> float | None:
        """Our number less the published one; None without rows."""
        return None if self.measure is None else self.measure.mean - self.published.mean

    @property
    def standing(self) -> Standing:
        """Where our number stands, by the paper's deviation, or by ours where the paper has none."""
        ours, difference = self.measure, self.difference
        if ours is None or difference is None:
            return Standing.NOT_RUN
        if self.published.metric is not Metric.ACCURACY:
            return Standing.SECONDS
        if ours.deviation is None:
            return Standing.ONE_SEED
        deviation = ours.deviation if self.published.deviation is None else self.published.deviation
        distance = round(abs(in_deviations(difference, deviation)), DIGITS)
        if distance <= 1:
            return Standing.WITHIN_ONE
        return Standing.WITHIN_TWO if distance <= 2 else Standing.BEYOND


def in_deviations(difference: float, deviation: float) -> float:
    """Divide a difference by a deviation, which may be 0."""
    if deviation:
        return difference / deviation
    return math.copysign(math.inf, difference) if difference else 0.0


def tables_of(report: str, configs: Path) -> list[tuple[str, str]]:
    """Find the tables that the settings of a report compare it with, each as source and table."""
    path = configs / f"{report}.yaml"
    named = yaml.safe_load(path.read_text()).get("report", {}).get("published") if path.is_file() else None
    texts = [named] if isinstance(named, str) else named or []
    return [(source.strip(), table.strip()) for source, _, table in (text.partition(",") for text in texts)]


def make_cells(
    published: Iterable[PublishedResult],
    reports: Iterable[BenchmarkReport],
    tables: Mapping[str, Sequence[tuple[str, str]]],
    stand_ins: Sequence[StandIn],
) -> list[Cell]:
    """Put our rows next to published numbers.

    A report is looked into for the tables that its settings name. Its rows must have the same data set, model,
    partition, number of clients and alpha, and the method's label or that of a stand-in, the first of which is taken.
    Of several reports one that is set as published comes first, then one with more seeds, then one with more numbers
    of the table, then the first by name. Seconds of a server are those of all rows that are next to accuracies of the
    same method in the same table, data set and number of clients.

    Args:
        tables: those that each report is compared with, by the report's name.
    """
    published, reports = list(published), list(reports)
    found: dict[PublishedResult, list[Ours]] = {}
    for cell in (one for one in published if one.metric is Metric.ACCURACY):
        labels = [one.row for one in stand_ins if (one.source, one.method) == (cell.source, cell.method)]
        named = [one for one in reports if (cell.source, cell.table) in tables[one.name]]
        found[cell] = [ours for report in named if (ours := _rows_for(cell, [*labels, cell.method], report))]
    numbers = Counter((cell.source, cell.table, ours.report) for cell, own in found.items() for ours in own)

    def rank(cell: PublishedResult, ours: Ours) -> tuple[bool, int, int, str]:
        of_table = numbers[cell.source, cell.table, ours.report]
        return (ours.rows[0].track != "as_published", -len(ours.rows), -of_table, ours.report)

    chosen = {cell: sorted(own, key=partial(rank, cell))[:1] for cell, own in found.items()}
    timed = gather(chosen, _timed_by)
    return [
        Cell(
            cell,
            [ours for accuracy in timed.get(_timed_by(cell), ()) for ours in chosen[accuracy]]
            if cell.metric is Metric.SERVER_SECONDS
            else chosen.get(cell, ()),
        )
        for cell in published
    ]


def _rows_for(cell: PublishedResult, labels: Sequence[str], report: BenchmarkReport) -> Ours | None:
    for methods in report.settings.values():
        for label in labels:
            rows = methods.get(label, ())
            if rows and all(map(is_comparable, rows)) and federation_of(rows[0]) == federation_of(cell):
                return Ours(report.name, rows)
    return None


def _timed_by(cell: PublishedResult) -> tuple[Hashable, ...]:
    return (cell.source, cell.table, cell.dataset, cell.model, cell.partition, cell.num_clients, cell.method)
