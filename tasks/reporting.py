"""The task that writes a benchmark's report."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fedfisher_core.reporting.drawing import to_png
from fedfisher_core.reporting.figures import accuracy_by_alpha_figure
from fedfisher_core.reporting.page import PartitionView, ReportData, write_report
from fedfisher_core.reporting.published import PublishedResult
from fedfisher_core.reporting.rows import Row
from fedfisher_core.settings import Cell, Experiment, PageSettings, Settings
from fedfisher_core.steps.partitions import class_names, label_counts
from fedfisher_core.store import Artifact, libraries
from tasks.options import step


@step(run_name="report")
def report(
    settings: Settings,
    command: str,
    rows: Sequence[Row],
    partitions: Mapping[Cell, Artifact],
    published: Sequence[PublishedResult] | None,
) -> Path:
    """Write results.json, results.csv, index.html, and the chart of accuracies as accuracy.png.

    Args:
        settings: the benchmark.
        command: what was run.
        rows: the results.
        partitions: who holds what, by cell.
        published: numbers from papers to stand beside ours.

    Returns:
        The report's folder.
    """
    folder = settings.run.reports / settings.name
    first = settings.seeds[0]
    views = [
        PartitionView(
            setting=cell.setting,
            seed=cell.seed,
            label_counts=np.array(label_counts(artifact)),
            class_names=class_names(artifact),
        )
        for cell, artifact in partitions.items()
        if cell.seed == first
    ]
    write_report(
        ReportData(
            rows=rows,
            partitions=views,
            published=published,
            **page_of(settings, settings.report, command=command, shown=_shown(settings)),
        ),
        folder,
    )
    (folder / "accuracy.png").write_bytes(to_png(accuracy_by_alpha_figure(rows)))
    return folder


def page_of(settings: Experiment, page: PageSettings, *, command: str, shown: Mapping[str, Any]) -> dict[str, Any]:
    """Gather what every report shows beside its results: the fields of `PageData`.

    Args:
        settings: the experiment.
        page: its title and notes.
        command: what was run.
        shown: the settings for the page's table.

    Returns:
        Keyword arguments.
    """
    return {
        "title": page.title or settings.name,
        "benchmark": settings.name,
        "command": command,
        "created": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "versions": libraries(),
        "settings": shown,
        "settings_yaml": settings.to_yaml(),
        "notes": page.notes,
    }


def _shown(settings: Settings) -> dict[str, Any]:
    """What the page's table of settings holds: not the page's own title and notes."""
    shown = settings.model_dump(mode="json", exclude={"report"})
    shown["methods"] = {label: chosen or "defaults" for label, chosen in settings.methods.items()}
    return shown
