"""Every published number next to ours, or the reason why there is none; run as `python -m benchmarks.audit`.

It measures nothing. It reads the committed reports, writes `reports/audit.txt` and prints its summary. The exit code is
1 if a number has neither a row of ours nor a reason, and 2 if a file can't be read.
"""

import csv
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from benchmarks.published_cells import Cell, StandIn, Standing, in_deviations, make_cells, tables_of
from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.benchmark.published import Metric, PublishedResult, federation_of, read_published
from fedfisher_core.experiments.benchmark.settings import PUBLISHED
from fedfisher_core.experiments.leaderboard.entries import read_reports
from fedfisher_core.reporting.formats import plural
from fedfisher_core.reporting.measure import gather

D = TypeVar("D")

REPORTS, CONFIGS = Path("reports"), Path("configs")
OUTPUT, REASONS, STAND_INS = "audit.txt", "not_run.csv", "compared_rows.csv"


@dataclass(frozen=True)
class Reason:
    """Why published numbers have none of ours; all but the last two fields are patterns, like those of file names.

    Args:
        alpha: as the file of published numbers has it, without zeros at its end.
        reason: why, in words.
        takes: what a run would take, in words.
    """

    source: str
    table: str
    dataset: str
    model: str
    num_clients: str
    alpha: str
    method: str
    metric: str
    reason: str
    takes: str

    def covers(self, cell: PublishedResult) -> bool:
        """Whether it is the reason for a published number."""
        return all(
            fnmatchcase(_written(getattr(cell, one.name)), getattr(self, one.name))
            for one in fields(self)
            if one.name not in ("reason", "takes")
        )


def read_lines(path: Path, kind: type[D]) -> list[D]:
    """Read a CSV file whose columns are the fields of a data class, all of them text.

    Raises:
        InputError: the file is missing, has other columns, or a line has an empty field.
    """
    if not path.is_file():
        raise InputError(f"no file {path}")
    names = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != names:
            raise InputError(f"{path} has the columns {reader.fieldnames}; expected {names}")
        lines = []
        for record in reader:
            if empty := [name for name in names if not record[name]]:
                raise InputError(f"{path}, line {reader.line_num}: {empty[0]} is empty; allowed: any text")
            lines.append(kind(**record))
    return lines


def reason_for(cell: PublishedResult, reasons: Sequence[Reason]) -> int | None:
    """Find the first reason that covers a published number: its place in the list, from 0."""
    return next((place for place, one in enumerate(reasons) if one.covers(cell)), None)


def _written(value: object) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _cell_line(cell: Cell, reasons: Sequence[Reason]) -> str:
    one, ours = cell.published, cell.measure
    unit = 100 if one.metric is Metric.ACCURACY else 1
    digits = {Metric.ACCURACY: 2, Metric.PARAMETERS: 0}.get(one.metric, 3)
    paper = f"{unit * one.mean:.{digits}f}" + ("" if one.deviation is None else f" ± {unit * one.deviation:.2f}")
    start = f"  {one.method:30} {paper:>14}  "
    if ours is None:
        place = reason_for(one, reasons)
        return start + ("WITHOUT A REASON" if place is None else f"not run, reason {place + 1}")
    where = f"{', '.join(dict.fromkeys(own.report for own in cell.ours))}: {cell.ours[0].rows[0].method}"
    if one.metric is not Metric.ACCURACY:
        return start + f"{ours.mean:>14.3f}  {'':3} {ours.mean / one.mean:>6.1f} times{'':15}  {where}"
    difference = ours.mean - one.mean
    spread = "" if ours.deviation is None else f" ± {100 * ours.deviation:.2f}"
    papers, own = (
        "–" if deviation is None else f"{in_deviations(difference, deviation):+.1f}"
        for deviation in (one.deviation, ours.deviation)
    )
    mean = f"{100 * ours.mean:.2f}{spread}"
    return start + f"{mean:>14}  {ours.n:>3} {100 * difference:>+8.2f} {papers:>8} {own:>8}  {where}"


def _table_text(name: tuple[str, str], cells: Sequence[Cell], reasons: Sequence[Reason]) -> list[str]:
    lines = [
        "",
        ", ".join(name),
        f"  {'':30} {'published':>14}  {'ours':>14}  {'n':>3} {'points':>8} {'its SDs':>8} {'our SDs':>8}  row",
    ]
    for (federation, metric), own in gather(
        cells, lambda one: (federation_of(one.published), one.published.metric)
    ).items():
        dataset, model, partition, clients, alpha = federation
        known = [dataset, model, partition]
        known += [] if clients is None else [f"{clients} clients"]
        known += [] if alpha is None else [f"alpha {alpha:g}"]
        what = "%" if metric is Metric.ACCURACY else metric.replace("_", " ")
        lines.append(f" {', '.join(known)}: {what}")
        lines += [_cell_line(one, reasons) for one in own]
    notes = [one.published.note for one in cells if one.published.note]
    return lines + [f"  note: {note}" for note in dict.fromkeys(notes)]


def summary(cells: Sequence[Cell], reasons: Sequence[Reason]) -> list[str]:
    """Count the published numbers by where ours stand, and those without ours by their reasons."""
    lines = []
    for source, own in (("All papers", cells), *gather(cells, lambda one: one.published.source).items()):
        lines.append(f"{source}: {plural(len(own), 'published number')}")
        counts = {standing: sum(one.standing is standing for one in own) for standing in Standing}
        lines += [f"  {count:>4}  {standing}" for standing, count in counts.items() if count]
    lines += ["", "Not run, by reason:"]
    places = [reason_for(one.published, reasons) for one in cells if one.standing is Standing.NOT_RUN]
    for place, one in enumerate(reasons):
        count = f"{places.count(place):>4}" if place in places else "none"
        lines += [f"  {count}  ({place + 1}) {one.reason}", f"        It takes {one.takes}"]
    if None in places:
        lines.append(f"  {places.count(None):>4}  WITHOUT A REASON: each needs a run, or a line of {REPORTS / REASONS}")
    return lines


@dataclass(frozen=True)
class Audit:
    """Published numbers with our rows, and what is known of both.

    Args:
        cells: with the rows that stand for methods.
        by_label: the same published numbers, each with the row that has the method's own label.
    """

    cells: Sequence[Cell]
    by_label: Sequence[Cell]
    reasons: Sequence[Reason]
    stand_ins: Sequence[StandIn]

    def text(self) -> str:
        """Write the whole audit."""
        lines = ["$ python -m benchmarks.audit", *summary(self.cells, self.reasons), ""]
        lines += ["Rows that stand for a method of a paper:"]
        lines += [line for one in self.stand_ins for line in self._stand_in_lines(one)]
        lines += [
            "",
            "Differences are in points, in the paper's standard deviations (its SDs) and in ours (our SDs). n counts",
            "seeds. Where a paper has no deviation, ours decides what is within one or two. Our seconds are means over",
            "seeds, and over the alphas of the table.",
        ]
        for name, own in gather(self.cells, lambda one: (one.published.source, one.published.table)).items():
            lines += _table_text(name, own, self.reasons)
        return "\n".join([*lines, ""])

    def _stand_in_lines(self, stand_in: StandIn) -> list[str]:
        """Say how far a row is from the paper in each table, and how far the row with the method's own label is."""
        pairs = [
            (one.published.table, [100 * abs(cell.difference) for cell in (one, other) if cell.difference is not None])
            for one, other in zip(self.cells, self.by_label, strict=True)
            if one.published.metric is Metric.ACCURACY
            and (one.published.source, one.published.method) == (stand_in.source, stand_in.method)
            and any(ours.rows[0].method == stand_in.row for ours in one.ours)
        ]
        lines = [f"  {stand_in.source}, {stand_in.method}: the row {stand_in.row!r}. {stand_in.instead}"]
        for table, own in gather(pairs, lambda pair: pair[0]).items():
            row, label = statistics.fmean(both[0] for _, both in own), [both[1] for _, both in own if len(both) > 1]
            than = f", and {statistics.fmean(label):.2f} by the row {stand_in.method!r}" if label else ""
            count = plural(len(own), "number")
            lines.append(f"    {table}, {count}: {row:.2f} points from the paper in the mean{than}")
        return lines


def read_all() -> Audit:
    """Read the published numbers with our rows, the reasons, and the rows that stand for methods."""
    reasons, stand_ins = read_lines(REPORTS / REASONS, Reason), read_lines(REPORTS / STAND_INS, StandIn)
    reports, published = read_reports([REPORTS]).benchmarks, read_published(PUBLISHED)
    tables = {one.name: tables_of(one.name, CONFIGS) for one in reports}
    cells, by_label = (make_cells(published, reports, tables, rows) for rows in (stand_ins, []))
    return Audit(cells, by_label, reasons, stand_ins)


def without_reason(cells: Sequence[Cell], reasons: Sequence[Reason]) -> list[PublishedResult]:
    """List the published numbers that have neither a row of ours nor a reason."""
    return [one.published for one in cells if not one.ours and reason_for(one.published, reasons) is None]


def main() -> int:
    """Write the audit, print its summary, and return the exit code."""
    try:
        audit = read_all()
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    (REPORTS / OUTPUT).write_text(audit.text(), encoding="utf-8")
    print("\n".join(summary(audit.cells, audit.reasons)))
    return 1 if without_reason(audit.cells, audit.reasons) else 0


if __name__ == "__main__":
    sys.exit(main())
