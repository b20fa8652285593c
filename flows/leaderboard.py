"""The leaderboard: its page, its table, and its run in MLflow."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.leaderboard.entries import make_entries, read_reports
from fedfisher_core.experiments.leaderboard.page import NAME, make_runs, render_leaderboard
from fedfisher_core.experiments.leaderboard.ranking import comparable_methods, mean_ranks_of
from fedfisher_core.reporting.chart_script import write_script
from fedfisher_core.reporting.formats import Table, plural
from fedfisher_core.reporting.rows import PAGE, RESULTS, as_csv, write_file
from fedfisher_core.reporting.runs import digest, with_page
from fedfisher_core.settings import TrackingSettings
from flows.probes import require_mlflow
from flows.terminal import command_line
from tasks.tracking import is_recorded


def make_leaderboard(folders: Sequence[Path], out: Path, tracking: TrackingSettings) -> list[Table]:
    """Read all reports, write index.html and results.csv, record both in MLflow if they changed, and return mean ranks.

    Raises:
        InputError: a report can't be read, `out` holds an experiment's report, or runs can't be recorded.
        OutputError: MLflow can't be written to.
    """
    if (out / RESULTS).exists():
        raise InputError(f"out={str(out)!r} holds the report of an experiment; allowed: another folder")
    reports = read_reports(folders)
    require_mlflow(tracking)
    entries = make_entries(reports.benchmarks)
    best = mean_ranks_of(entries, comparable_methods(entries))
    created = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    page = render_leaderboard(reports, entries, out=out, command=command_line(), created=created)
    write_script(out.parent)
    table = as_csv(entries)
    write_file(out / "results.csv", table)
    write_file(out / PAGE, page.encode())
    runs = make_runs(best, num_entries=len(entries), num_reports=len(reports.benchmarks), table=table, out=out)
    # What the page shows, but for when and by which command it was made.
    shown = render_leaderboard(reports, entries, out=out, command="", created="")
    runs = with_page(runs, out / PAGE, content=digest(shown))
    if not is_recorded(tracking, NAME, runs):
        # Prefect and MLflow take seconds to load.
        from flows.provenance import git_commit
        from tasks.record import record

        record.fn(tracking, NAME, lambda: runs, {"git_commit": git_commit()})
    ranked = [[method, f"{rank:.2f}"] for method, rank in best.ranks.items()]
    return [Table(f"mean ranks over {plural(best.num_settings, 'setting')}", ["method", "mean rank"], ranked)]
