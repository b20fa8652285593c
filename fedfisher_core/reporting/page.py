"""The report of a benchmark: one HTML page that needs nothing outside itself, beside the result files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedfisher_core.errors import InputError
from fedfisher_core.reporting import formats
from fedfisher_core.reporting.costs import client_costs
from fedfisher_core.reporting.drawing import to_svg
from fedfisher_core.reporting.figures import (
    accuracy_by_alpha_figure,
    accuracy_by_bits_figure,
    time_figure,
)
from fedfisher_core.reporting.grids import partition_figure
from fedfisher_core.reporting.notes import notes_html
from fedfisher_core.reporting.published import PublishedResult, compare
from fedfisher_core.reporting.rows import Row, sorted_rows, write_results, write_text
from fedfisher_core.reporting.summary import Setting, families, overview

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
class PageData:
    """What the report of any experiment shows beside its results.

    Args:
        title: its title.
        benchmark: name of the benchmark.
        command: the command that makes it again.
        created: when it was made.
        versions: version by package.
        settings: the settings; nested mappings become groups.
        settings_yaml: the same as YAML.
        notes: paragraphs in the little markup of `notes_html`.
    """

    title: str
    benchmark: str
    command: str
    created: str
    versions: Mapping[str, str]
    settings: Mapping[str, Any]
    settings_yaml: str
    notes: str


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


def write_report(report: ReportData, folder: Path) -> tuple[Path, Path, Path]:
    """Write results.json, results.csv and index.html, each replaced in one step.

    Args:
        report: what to show.
        folder: where to; made if missing.

    Returns:
        The paths of results.json, results.csv and index.html.

    Raises:
        InputError: as `render_page`; nothing is written then.
    """
    page = render_page(report)
    return (*write_results(report.rows, folder), write_text(folder / "index.html", page))


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


def template_text(name: str) -> str:
    """Read one of the files of reports/templates."""
    return files("reports.templates").joinpath(name).read_text(encoding="utf-8")


def template_environment() -> Environment:
    """Make what renders the templates, with the filters that all of them use."""
    environment = Environment(
        loader=FunctionLoader(template_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "percent": formats.percent,
        "points": formats.points,
        "signed": formats.signed,
        "seconds": formats.seconds,
        "megabits": formats.megabits,
        "grouped": formats.grouped,
        "value": formats.setting_value,
        "plural": formats.plural,
        "breakable": formats.breakable,
    }
    return environment
