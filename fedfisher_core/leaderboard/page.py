"""The page of a leaderboard: one file that carries its data and needs no network."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fedfisher_core.experiments.benchmark.roles import Role
from fedfisher_core.leaderboard.entries import SETTING, Entry
from fedfisher_core.leaderboard.ranking import MeanRanks, rank_tracks
from fedfisher_core.leaderboard.reading import Reports
from fedfisher_core.reporting.page import PageData, render, script_data, template_text
from fedfisher_core.reporting.rank_diagram import rank_diagram
from fedfisher_core.settings import AVERAGE, PLAIN

# Fewer than this would make ties of accuracies that differ.
_DIGITS = 9


@dataclass(frozen=True)
class Column:
    """A column of the table.

    Args:
        name: what the script calls it.
        heading: what the page calls it.
        words: whether it holds words, which stand to the left.
    """

    name: str
    heading: str
    words: bool = False


_COLUMNS = (
    Column("method", "Method", words=True),
    Column("rank", "Rank"),
    Column("accuracy", "Accuracy, %"),
    Column("seeds", "Seeds"),
    Column("dataset", "Data set", words=True),
    Column("model", "Model", words=True),
    Column("objective", "Objective", words=True),
    Column("server_optimiser", "Server optimiser", words=True),
    Column("partition", "Partition", words=True),
    Column("alpha", "α"),
    Column("shift", "Shift", words=True),
    Column("num_clients", "Clients"),
    Column("num_rounds", "Rounds"),
    Column("cohort", "Cohort"),
    Column("unseen_clients", "Unseen clients"),
    Column("wire_budget", "Budget", words=True),
    Column("upload", "Upload, Mbit"),
    Column("download", "Download, Mbit"),
    Column("server", "Server, s"),
    Column("networks", "Networks"),
    Column("validation", "Uses validation", words=True),
    Column("track", "Track", words=True),
    Column("epsilon", "ε, at most"),
    Column("report", "Report", words=True),
    Column("training", "Training", words=True),
)


def render_leaderboard(
    reports: Reports, entries: Sequence[Entry], best: MeanRanks, *, out: Path, command: str, created: str
) -> str:
    """Render the page.

    Args:
        reports: what the entries were made of.
        entries: at least one.
        best: the methods that the page compares before a reader chooses others.
        out: the folder that the page is written to; links to the reports start there.
        command: the command that makes the page again.
        created: when it was made.

    Returns:
        The page; it makes no request.
    """
    # What no entry has, or all have alike, would be a column that says nothing.
    usual = {
        "epsilon": None,
        "shift": None,
        "training": None,
        "num_rounds": 1,
        "cohort": None,
        "unseen_clients": None,
        "objective": PLAIN,
        "server_optimiser": AVERAGE,
    }
    absent = {name for name, value in usual.items() if all(getattr(one, name) == value for one in entries)}
    return render(
        "leaderboard.html.j2",
        PageData(
            title="Leaderboard",
            benchmark="All reports",
            command=command,
            created=created,
            versions={},
            settings={},
            settings_yaml="",
            notes="",
        ),
        columns=[column for column in _COLUMNS if column.name not in absent],
        objectives="objective" not in absent,
        num_entries=len(entries),
        num_settings=len({one.setting for one in entries}),
        num_reports=len(reports.benchmarks),
        left_out=[(one, _link(one.folder, out)) for one in reports.left_out],
        shifts="shift" not in absent,
        tracks=[(track, rank_diagram(track.ranked)) for track in rank_tracks(entries)],
        ensembles=any(one.kind is Role.ENSEMBLE for one in entries),
        script=template_text("leaderboard.js"),
        data=script_data(_data(entries, best, {one.name: _link(one.folder, out) for one in reports.benchmarks})),
    )


def _link(folder: Path, out: Path) -> str:
    return quote(Path(os.path.relpath(folder / "index.html", out)).as_posix())


def _data(entries: Sequence[Entry], best: MeanRanks, links: dict[str, str]) -> dict[str, Any]:
    """Write settings and methods once, and each entry as a short list; numbers as exact as the page shows them."""
    settings = list(dict.fromkeys(one.setting for one in entries))
    place = {setting: index for index, setting in enumerate(settings)}
    methods = sorted({one.method for one in entries})
    number = {method: index for index, method in enumerate(methods)}
    kinds = list(Role)
    return {
        "links": links,
        "methods": methods,
        "kinds": kinds,
        "chosen": [number[method] for method in best.ranks],
        "setting_fields": SETTING,
        "settings": settings,
        "entries": [
            [
                place[one.setting],
                number[one.method],
                kinds.index(one.kind),
                one.num_networks,
                round(one.accuracy, _DIGITS),
                None if one.accuracy_deviation is None else round(one.accuracy_deviation, _DIGITS),
                one.num_seeds,
                one.rank,
                one.num_ranked,
                one.below_local_mean,
                round(one.upload_bits),
                round(one.download_bits),
                float(f"{one.server_seconds:.4g}"),
                one.uses_validation,
                None if one.epsilon is None else round(one.epsilon, 4),
            ]
            for one in entries
        ],
    }
