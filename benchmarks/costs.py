"""What a method costs compared with others, from the results of reports; run as `python -m benchmarks.costs`.

python -m benchmarks.costs reports/best_effort_*

It measures nothing. Seconds are those that the reports' runs took; other work may have run on the machine then.
"""

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path

from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.reporting.measure import gather
from fedfisher_core.reporting.rows import RESULTS, read_rows


def server_ratio(rows: Sequence[Row], method: str, other: str) -> float:
    """Divide the median seconds of a method's server by another's.

    Args:
        rows: of one data set, network and number of clients.
        method: its label.
        other: the other's.

    Returns:
        The ratio of the medians over alphas and seeds.
    """
    ours, theirs = ([row.server_seconds for row in rows if row.method == label] for label in (method, other))
    return statistics.median(ours) / statistics.median(theirs)


def client_ratio(rows: Sequence[Row], method: str, other: str) -> float:
    """Divide what all clients of a method take, to train, compute statistics and encode, by what another's take.

    Args:
        rows: of one data set, network and number of clients.
        method: its label.
        other: the other's.

    Returns:
        The ratio of the sums over alphas and seeds.
    """
    ours, theirs = (sum(row.client_seconds for row in rows if row.method == label) for label in (method, other))
    return ours / theirs


def main() -> None:
    """Print a line for each data set, network and number of clients."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reports", nargs="+", type=Path, help="folders with results.json")
    parser.add_argument("--method", default="gaussian_distillation", help="its label (%(default)s)")
    parser.add_argument("--server", default="fedfisher_kfac", help="whose server it is beside (%(default)s)")
    parser.add_argument("--client", default="fedavg", help="whose clients it is beside (%(default)s)")
    given = parser.parse_args()
    print(f"{given.method}: seconds of its server beside {given.server}'s, and of its clients beside {given.client}'s")
    print(f"{'data set':14} {'network':7} {'clients':>7} {'server':>7} {'its median, s':>14} {'clients':>8}")
    rows = [row for folder in given.reports for row in read_rows(folder / RESULTS, Row)]
    for label in (given.method, given.server, given.client):
        if label not in {row.method for row in rows}:
            parser.error(f"no row of the reports is of {label!r}")
    groups = gather(rows, lambda row: (row.dataset, row.model, row.num_clients))
    for (dataset, model, clients), own in groups.items():
        seconds = statistics.median(row.server_seconds for row in own if row.method == given.method)
        print(
            f"{dataset:14} {model:7} {clients:7} {server_ratio(own, given.method, given.server):7.1f} "
            f"{seconds:14.1f} {client_ratio(own, given.method, given.client):8.1f}"
        )


if __name__ == "__main__":
    main()
