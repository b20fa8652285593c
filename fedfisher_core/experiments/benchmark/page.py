"""The report of a benchmark: one HTML page that needs nothing outside itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedfisher_core.errors import InputError
from fedfisher_core.experiments.benchmark.costs import client_costs
from fedfisher_core.experiments.benchmark.figures import (
    accuracy_by_alpha_figure,
    accuracy_by_bits_figure,
    time_figure,
)
from fedfisher_core.experiments.benchmark.grids import partition_figure
from fedfisher_core.experiments.benchmark.plan import BenchmarkPlan, parse_published
from fedfisher_core.experiments.benchmark.published import PublishedResult, compare, read_published
from fedfisher_core.experiments.benchmark.rows import Row, sorted_rows
from fedfisher_core.experiments.benchmark.settings import PUBLISHED, BenchmarkSettings
from fedfisher_core.experiments.benchmark.summary import Setting, families, overview
from fedfisher_core.federation.partition import class_names, label_counts
from fedfisher_core.reporting import formats
from fedfisher_core.reporting.drawing import to_png, to_svg
from fedfisher_core.reporting.notes import notes_html
from fedfisher_core.reporting.page import PageData, template_environment, template_text
from fedfisher_core.settings import Cell
from fedfisher_core.store import Artifact
from fedfisher_core.walk import Outcome

T = TypeVar("T")


@dataclass(frozen=True)
class PartitionView:
    """How one seed's data is split over the clients.

    Args:
        setting: label of the setting.
        seed: the seed.
        label_counts: examples by client and class, shape (clients, classes).
        class_names: names of the classes.
    """

    setting: str
    seed: int
    label_counts: NDArray[np.integer]
    class_names: tuple[str, ...]


@dataclass(frozen=True)
class ReportData(PageData):
    """All that the report of a benchmark shows.

    Args:
        rows: the results, at least one.
        partitions: the splits to show, one a setting.
        published: published accuracies to compare with; None for no comparison.
    """

    rows: Sequence[Row]
    partitions: Sequence[PartitionView]
    published: Sequence[PublishedResult] | None


@dataclass(frozen=True)
class FailedClients:
    """The clients that failed in one setting with one seed, and the methods that went without them."""

    setting: str
    seed: int
    clients: tuple[int, ...]
    methods: tuple[str, ...]


def render_page(report: ReportData) -> str:
    """Render a report as one self-contained HTML page.

    Args:
        report: what to show.

    Returns:
        The page; equal reports give equal text. It makes no request and runs no script.

    Raises:
        InputError: there are no rows, or two rows share setting, method and seed.
    """
    if not report.rows:
        raise InputError(f"the report {report.title!r} has no rows; it needs at least one")
    rows = sorted_rows(report.rows)
    comparisons = None if report.published is None else compare(rows, report.published)
    return (
        template_environment()
        .get_template("page.html.j2")
        .render(
            report=report,
            style=Markup(template_text("style.css")),
            notes=notes_html(report.notes),
            settings=formats.settings_groups(report.settings),
            rows=rows,
            rows_by_setting=_grouped(rows, lambda row: Setting.of(row).label),
            families=[(family, group, overview(group)) for family, group in families(rows).items()],
            failures=failed_clients(rows),
            methods=sorted({row.method for row in rows}),
            seeds=sorted({row.seed for row in rows}),
            method_settings=_method_settings(rows),
            comparisons=comparisons,
            comparisons_by_setting=_grouped(comparisons or (), lambda one: one.setting.label),
            accuracy_by_alpha=_inline(accuracy_by_alpha_figure(rows)),
            accuracy_by_bits=_inline(accuracy_by_bits_figure(rows)),
            time=_inline(time_figure(rows)),
            costs=client_costs(rows),
            partitions=[(view, _inline(_partition(view))) for view in report.partitions],
        )
    )


def report_files(plan: BenchmarkPlan, outcome: Outcome, rows: Sequence[Row], page: PageData) -> dict[str, bytes]:
    """Make the page, and the chart of accuracies as accuracy.png.

    Args:
        plan: the benchmark.
        outcome: of its jobs.
        rows: the results.
        page: what every report shows.

    Returns:
        The files by name.
    """
    first = plan.settings.seeds[0]
    shown = {place.cell.setting: place for place in plan.federations.places if place.cell.seed == first}
    views = [_view(place.cell, outcome.artifacts[plan.federations.partition(place).name]) for place in shown.values()]
    report = ReportData(
        **{field.name: getattr(page, field.name) for field in fields(PageData)},
        rows=rows,
        partitions=views,
        published=_published(plan.settings),
    )
    return {
        "index.html": render_page(report).encode(),
        "accuracy.png": to_png(accuracy_by_alpha_figure(rows)),
    }


def _view(cell: Cell, partition: Artifact) -> PartitionView:
    return PartitionView(
        setting=cell.setting,
        seed=cell.seed,
        label_counts=np.array(label_counts(partition)),
        class_names=class_names(partition),
    )


def _published(settings: BenchmarkSettings) -> list[PublishedResult] | None:
    if settings.report.published is None:
        return None
    source, table = parse_published(settings.report.published)
    return [one for one in read_published(PUBLISHED) if (one.source, one.table) == (source, table)]


def failed_clients(rows: Sequence[Row]) -> list[FailedClients]:
    """List the failed clients by setting and seed.

    Args:
        rows: the rows, sorted.

    Returns:
        An entry for each setting, seed and set of clients that failed, in the order of the rows.
    """
    groups: dict[tuple[str, int, tuple[int, ...]], list[str]] = {}
    for row in rows:
        if row.failed_clients:
            key = (Setting.of(row).label, row.seed, tuple(sorted(row.failed_clients)))
            groups.setdefault(key, []).append(row.method)
    return [FailedClients(*key, tuple(methods)) for key, methods in groups.items()]


def _grouped(items: Sequence[T], label: Callable[[T], str]) -> list[tuple[str, list[T]]]:
    return [(name, list(group)) for name, group in groupby(items, label)]


def _method_settings(rows: Sequence[Row]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        distinct = found.setdefault(row.method, [])
        if row.method_settings not in distinct:
            distinct.append(row.method_settings)
    return dict(sorted(found.items()))


def _partition(view: PartitionView) -> Figure:
    return partition_figure(view.label_counts, list(view.class_names), view.setting)


def _inline(figure: Figure) -> Markup:
    return Markup(to_svg(figure))
