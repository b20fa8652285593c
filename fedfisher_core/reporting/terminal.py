"""The results as plain text, for the terminal."""

import statistics
from collections.abc import Sequence

from fedfisher_core.reporting.rows import Row
from fedfisher_core.reporting.summary import MethodSummary, SettingSummary, families, overview


def summary_table(rows: Sequence[Row]) -> str:
    """Write the accuracies as an aligned text table.

    Args:
        rows: the rows, in any order.

    Returns:
        A block for each data set, model, number of clients and of rounds: a line a method with its accuracy
        in per cent by partition (mean ± deviation, * for the best one-shot method), its upload as a multiple
        of FedAvg's and its client and server seconds (means over partitions and seeds). No newline ends it.
    """
    return "\n\n".join(_block(family, summaries) for family, summaries in families(rows).items())


def _block(family: str, summaries: Sequence[SettingSummary]) -> str:
    splits = [
        summary.setting.partition if summary.setting.alpha is None else f"alpha={summary.setting.alpha:g}"
        for summary in summaries
    ]
    if len(set(splits)) < len(splits):
        splits = [summary.setting.split for summary in summaries]
    lines = [["method", *(f"{split} " for split in splits), "bits/fedavg", "client s", "server s"]]
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
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in lines]
    return "\n".join([family, text[0], "-" * max(map(len, text)), *text[1:]])


def _accuracy(method: MethodSummary | None) -> str:
    if method is None:
        return "- "
    accuracy = method.accuracy
    deviation = "" if accuracy.deviation is None else f" ± {100 * accuracy.deviation:5.2f}"
    return f"{100 * accuracy.mean:.2f}{deviation}" + ("*" if method.best else " ")
