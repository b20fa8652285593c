"""Small reports on disk, and the leaderboards that are made of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedfisher_core.experiments.benchmark.rows import Row, sorted_rows
from fedfisher_core.experiments.leaderboard.entries import Entry, make_entries, read_reports
from fedfisher_core.experiments.leaderboard.page import render_leaderboard
from fedfisher_core.reporting.chart_script import write_script
from fedfisher_core.reporting.rows import write_rows
from tests.experiments.benchmark.samples import make_row


def scored(method: str, *accuracies: float, **changes: object) -> list[Row]:
    """A row a seed, of an artifact of its own."""
    settings = {"method": method, "wire": {"budget": "fedavg"}}
    return [
        make_row(
            method,
            **{
                "seed": seed,
                "accuracy": accuracy,
                "artifact": f"{method} {seed} {changes}",
                "method_settings": settings,
                **changes,
            },
        )
        for seed, accuracy in enumerate(accuracies)
    ]


def within(budget: object, method: str) -> dict[str, object]:
    return {"method_settings": {"method": method, "wire": {"budget": budget}}}


def write_report(folder: Path, name: str, *groups: Sequence[Row]) -> Path:
    path, _ = write_rows(sorted_rows(row for rows in groups for row in rows), folder / name)
    return path


def entries_of(folder: Path, *groups: Sequence[Row]) -> dict[str, Entry]:
    """The entries of one report, by method."""
    write_report(folder, "one", *groups)
    entries = make_entries(read_reports([folder]).benchmarks)
    found = {one.method: one for one in entries}
    assert len(found) == len(entries)
    return found


def write_board(folder: Path, reports: Mapping[str, Sequence[Row]]) -> str:
    """Write reports, and the page over them next to them."""
    for name, rows in reports.items():
        write_report(folder, name, rows)
    read = read_reports([folder])
    entries = make_entries(read.benchmarks)
    html = render_leaderboard(
        read, entries, out=folder / "leaderboard", command="fedfisher leaderboard", created="2030-01-02"
    )
    (folder / "leaderboard").mkdir(exist_ok=True)
    write_script(folder)
    (folder / "leaderboard/index.html").write_text(html)
    return html
