"""The results of a benchmark as tables for the terminal."""

from collections.abc import Sequence

from fedfisher_core.experiments.benchmark.algorithms import as_algorithms
from fedfisher_core.experiments.benchmark.roles import Role
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.summary import OverviewLine, SettingSummary, families, overview
from fedfisher_core.reporting.tables import Table


def summary_tables(rows: Sequence[Row]) -> list[Table]:
    """Write the accuracies as tables.

    Args:
        rows: the rows, in any order.

    Returns:
        A table for each data set, model, number of clients and of rounds: a line a method with its accuracy
        in per cent by partition (mean ± deviation, * for the best method of one network), its upload as a multiple
        of FedAvg's and its client and server seconds (means over partitions and seeds).
    """
    return [_table(family, summaries) for family, summaries in families(as_algorithms(rows)).items()]


def _table(family: str, summaries: Sequence[SettingSummary]) -> Table:
    settings = [summary.setting for summary in summaries]
    splits = [one.partition if one.alpha is None else f"alpha={one.alpha:g}" for one in settings]
    if len(set(splits)) < len(splits) or any(one.shift for one in settings):
        splits = [one.split for one in settings]
    header = ["method", *(f"{split} " for split in splits), "bits/fedavg", "client s", "server s"]
    return Table(title=family, header=header, lines=[_line(line) for line in overview(summaries)])


def _line(line: OverviewLine) -> list[str]:
    return [
        line.method if line.role is Role.ONE_NETWORK else f"{line.method} ({line.role})",
        *("- " if cell is None else cell.accuracy.percent() + ("*" if cell.best else " ") for cell in line.cells),
        "-" if line.upload_ratio is None else f"{line.upload_ratio:.2f}x",
        f"{line.mean('client_seconds'):.2f}",
        f"{line.mean('server_seconds'):.2f}",
    ]
