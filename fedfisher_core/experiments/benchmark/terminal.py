"""The results in short, for the terminal."""

import statistics
from collections.abc import Sequence

from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.summary import MethodSummary, SettingSummary, families, overview
from fedfisher_core.reporting.tables import Table


def summary_tables(rows: Sequence[Row]) -> list[Table]:
    """Write the accuracies as tables.

    Args:
        rows: the rows, in any order.

    Returns:
        A table for each data set, model, number of clients and of rounds: a line a method with its accuracy
        in per cent by partition (mean ± deviation, * for the best one-shot method), its upload as a multiple
        of FedAvg's and its client and server seconds (means over partitions and seeds).
    """
    return [_table(family, summaries) for family, summaries in families(rows).items()]


def _table(family: str, summaries: Sequence[SettingSummary]) -> Table:
    splits = [
        summary.setting.partition if summary.setting.alpha is None else f"alpha={summary.setting.alpha:g}"
        for summary in summaries
    ]
    if len(set(splits)) < len(splits):
        splits = [summary.setting.split for summary in summaries]
    header = ["method", *(f"{split} " for split in splits), "bits/fedavg", "client s", "server s"]
    lines = []
    for line in overview(summaries):
        ratios = [cell.upload_ratio for cell in line.present if cell.upload_ratio is not None]
        lines.append(
            [
                f"{line.method} (reference)" if line.reference else line.method,
                *(_accuracy(cell) for cell in line.cells),
                f"{statistics.fmean(ratios):.2f}x" if ratios else "-",
                f"{statistics.fmean(cell.client_seconds.mean for cell in line.present):.2f}",
                f"{statistics.fmean(cell.server_seconds.mean for cell in line.present):.2f}",
            ]
        )
    return Table(title=family, header=header, lines=lines)


def _accuracy(method: MethodSummary | None) -> str:
    if method is None:
        return "- "
    accuracy = method.accuracy
    deviation = "" if accuracy.deviation is None else f" ± {100 * accuracy.deviation:5.2f}"
    return f"{100 * accuracy.mean:.2f}{deviation}" + ("*" if method.best else " ")
