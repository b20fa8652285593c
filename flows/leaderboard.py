"""Make the leaderboard: its page, its table, and its run in MLflow."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from fedfisher_core.errors import InputError
from fedfisher_core.leaderboard.entries import make_entries
from fedfisher_core.leaderboard.page import render_leaderboard
from fedfisher_core.leaderboard.ranking import comparable_methods, mean_ranks_of
from fedfisher_core.leaderboard.reading import read_reports
from fedfisher_core.leaderboard.runs import NAME, make_runs
from fedfisher_core.reporting.formats import plural
from fedfisher_core.reporting.rows import RESULTS, as_csv, write_file
from fedfisher_core.reporting.tables import Table
from fedfisher_core.settings import TrackingSettings
from flows.invocation import command_line
from flows.probes import require_mlflow
from flows.unchanged import is_recorded


def make_leaderboard(folders: Sequence[Path], out: Path, tracking: TrackingSettings) -> list[Table]:
    """Read all reports, write index.html and results.csv, and record both in MLflow where they have changed.

    Args:
        folders: of the reports.
        out: where to; made if missing.
        tracking: where MLflow keeps runs.

    Returns:
        The mean ranks, for the terminal.

    Raises:
        InputError: a report can't be read, `out` holds the report of an experiment, which this would replace, or runs
            can't be recorded.
        OutputError: MLflow can't be written to.
    """
    if (out / RESULTS).exists():
        raise InputError(f"out={str(out)!r} holds the report of an experiment; allowed: a folder of its own")
    reports = read_reports(folders)
    require_mlflow(tracking)
    entries = make_entries(reports.benchmarks)
    best = mean_ranks_of(entries, comparable_methods(entries))
    created = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    page = render_leaderboard(reports, entries, best, out=out, command=command_line(), created=created)
    table = as_csv(entries)
    write_file(out / "results.csv", table)
    write_file(out / "index.html", page.encode())
    runs = make_runs(best, num_entries=len(entries), num_reports=len(reports.benchmarks), table=table, out=out)
    if not is_recorded(tracking, NAME, runs):
        # Prefect and MLflow take seconds to load.
        from flows.provenance import git_commit
        from tasks.recording import record

        record.fn(tracking, NAME, lambda: runs, {"git_commit": git_commit()})
    ranked = [[method, f"{rank:.2f}"] for method, rank in best.ranks.items()]
    return [Table(f"mean ranks over {plural(best.num_settings, 'setting')}", ["method", "mean rank"], ranked)]
