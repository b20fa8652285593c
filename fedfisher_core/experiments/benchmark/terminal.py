"""The results of a benchmark as tables for the terminal."""

from collections.abc import Sequence

from fedfisher_core.experiments.benchmark.algorithms import as_algorithms
from fedfisher_core.experiments.benchmark.rows import Role, Row, Seconds, compared_seconds
from fedfisher_core.experiments.benchmark.summary import OverviewLine, SettingSummary, families, overview
from fedfisher_core.reporting.formats import Table


def summary_tables(rows: Sequence[Row]) -> list[Table]:
    """Write the accuracies as tables, one for each data set, model, number of clients and of rounds.

    A line has a method's accuracy in per cent by partition (mean ± deviation, * for the best method of one network),
    its upload as a multiple of FedAvg's, and its client and server seconds (means over partitions and seeds). Seconds
    are of processors where all rows have them.
    """
    seconds = compared_seconds(rows)
    return [_table(family, summaries, seconds) for family, summaries in families(as_algorithms(rows)).items()]


def _table(family: str, summaries: Sequence[SettingSummary], seconds: Seconds) -> Table:
    settings = [summary.setting for summary in summaries]
    splits = [one.partition if one.alpha is None else f"alpha={one.alpha:g}" for one in settings]
    schemes = {one.partition for one in settings if one.alpha is not None}
    if len(set(splits)) < len(splits) or len(schemes) > 1 or any(one.shift for one in settings):
        splits = [one.split for one in settings]
    header = [
        "method",
        *(f"{split} " for split in splits),
        "bits/fedavg",
        f"client {seconds.unit}",
        f"server {seconds.unit}",
    ]
    return Table(title=family, header=header, lines=[_line(line, seconds) for line in overview(summaries)])


def _line(line: OverviewLine, seconds: Seconds) -> list[str]:
    return [
        line.method if line.role is Role.ONE_NETWORK else f"{line.method} ({line.role})",
        *("- " if cell is None else cell.accuracy.percent() + ("*" if cell.best else " ") for cell in line.cells),
        "-" if line.upload_ratio is None else f"{line.upload_ratio:.2f}x",
        f"{line.mean(seconds.client):.2f}",
        f"{line.mean(seconds.server):.2f}",
    ]
