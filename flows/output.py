"""What a command prints, and who reads it."""

import os
import select
import sys
from pathlib import Path

from fedfisher_core.errors import InputError


def nobody_reads() -> bool:
    """Whether who read the standard output has had enough of it, as `head` has; then what is left of it is dropped."""
    output = select.poll()
    output.register(sys.stdout, select.POLLOUT)
    if not any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0)):
        return False
    # Python writes what is left at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


def print_report(folder: Path) -> None:
    """Print the tables of a report, what failed, and where its page is.

    Args:
        folder: of the report.

    Raises:
        InputError: it has no rows.
    """
    from fedfisher_core.experiments.contract import experiments
    from fedfisher_core.experiments.loading import DEFAULT
    from fedfisher_core.failures import read_failed
    from fedfisher_core.reporting.folder import FAILED
    from fedfisher_core.reporting.rows import RESULTS, experiment_of_rows
    from fedfisher_core.reporting.tables import as_text

    path = folder / RESULTS
    experiment = experiments.get(experiment_of_rows(path) or DEFAULT)
    rows = experiment.read(path)
    if not rows:
        raise InputError(f"{path} has no rows; allowed: at least one")
    print(as_text(experiment.tables(rows)))
    for one in read_failed(folder / FAILED):
        print(f"\nfailed: {one.job}: {one.reason}")
    print(f"\nreport: {folder / 'index.html'}")
