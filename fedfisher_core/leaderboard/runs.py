"""The run of a leaderboard in MLflow."""

import hashlib
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from fedfisher_core.leaderboard.ranking import MeanRanks
from fedfisher_core.reporting.runs import Record, Runs
from fedfisher_core.settings.base import LEADERBOARD

NAME = LEADERBOARD
"""Name of the experiment and of its run."""


def make_runs(best: MeanRanks, *, num_entries: int, num_reports: int, table: bytes, out: Path) -> Runs:
    """Make the one run: its metrics are mean ranks, and it holds the table.

    Args:
        best: the methods whose mean ranks are recorded.
        num_entries: lines of the table.
        num_reports: the reports that it is made of.
        table: all entries as CSV.
        out: the leaderboard's folder, by which the run is found again.

    Returns:
        The run.
    """
    counts = {"num_entries": num_entries, "num_reports": num_reports, "num_common_settings": best.num_settings}
    metrics = {
        f"mean_rank_{name}": rank for name, rank in zip(_metric_names(best.ranks), best.ranks.values(), strict=True)
    }
    run = Record(
        name=NAME,
        params={"folder": out.as_posix()},
        metrics={**counts, **metrics},
        tags={},
        drawn_from=(hashlib.sha256(table).hexdigest(),),
        draw=partial(dict, {"results.csv": table}),
        folder="tables",
    )
    return Runs(single=[run], summary=[])


def _metric_names(methods: Iterable[str]) -> list[str]:
    """Write labels as MLflow allows them; those that become equal are numbered."""
    names: list[str] = []
    for method in methods:
        name = re.sub(r"[^\w-]+", "_", method)
        again = sum(one == name or one.startswith(f"{name}.") for one in names)
        names.append(f"{name}.{again + 1}" if again else name)
    return names
