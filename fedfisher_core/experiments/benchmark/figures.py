"""Figures of result rows: accuracy by alpha, accuracy against upload, seconds by method."""

import math
from collections.abc import Callable, Collection, Sequence
from itertools import groupby
from textwrap import TextWrapper
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from fedfisher_core.experiments.benchmark.roles import Role, role_of
from fedfisher_core.experiments.benchmark.rows import Row, sorted_rows
from fedfisher_core.experiments.benchmark.summary import MethodSummary, Setting, SettingSummary, families, summarise
from fedfisher_core.reporting.drawing import (
    INK,
    MethodStyle,
    legend_below,
    literal,
    method_styles,
    new_figure,
    panel_title,
    plain_axes,
)
from fedfisher_core.reporting.measure import BASELINE, Measure, gather

_WIDTH = 10.0
# Uploads within a tenth of each other are drawn side by side, so many inches apart.
_CLOSE = 1.1
_SPACING = 0.085
# What fits below a panel, in the size of its ticks.
_CHARACTERS = 56
_MOST_LINES = 4
"""Families that have seconds of their own."""


def accuracy_by_alpha_figure(rows: Sequence[Row]) -> Figure:
    """Draw each method's accuracy by partition, the concentration rising to the right; bars are deviations.

    Lines join the concentrations of one scheme under one shift.

    Args:
        rows: the rows of a report.

    Returns:
        The figure, a panel for each data set, model, number of clients and of rounds.
    """
    styles = method_styles(row.method for row in rows)
    groups = families(rows)
    figure, panels = _panels(len(groups), styles, rows, height=3.3)
    for axes, (family, summaries) in zip(panels, groups.items(), strict=True):
        methods = [method for summary in summaries for method in summary.methods]
        present = sorted({method.method for method in methods})
        # Neighbouring methods are set apart so that their bars don't cover each other.
        offsets = np.linspace(-0.28, 0.28, len(present)) if len(present) > 1 else np.zeros(1)
        for label, offset in zip(present, offsets, strict=True):
            for _, scheme in groupby(enumerate(summaries), _scheme_of):
                points = [
                    (column + offset, method)
                    for column, summary in scheme
                    for method in summary.methods
                    if method.method == label
                ]
                if points:
                    places, drawn = zip(*points, strict=True)
                    line = styles[label].line if len(points) > 1 else "none"
                    _error_bars(axes, places, drawn, styles[label], linestyle=line)
        room = _CHARACTERS // len(summaries)
        axes.set_xticks(range(len(summaries)), [_wrapped(summary.setting.split, room) for summary in summaries])
        axes.set_xlim(-0.5, len(summaries) - 0.5)
        _finish_accuracy(axes, methods, family)
    return figure


def _wrapped(split: str, room: int) -> str:
    """Write a split in lines of so many characters, or of one word where that is longer."""
    words = TextWrapper(max(room, 1), break_long_words=False, break_on_hyphens=False)
    return "\n".join(line for part in split.split(", ") for line in words.wrap(literal(part)))


def _scheme_of(numbered: tuple[int, SettingSummary]) -> tuple[str, str | None]:
    setting = numbered[1].setting
    return setting.partition, setting.shift


def accuracy_by_bits_figure(rows: Sequence[Row]) -> Figure:
    """Draw each method's accuracy against what all clients upload; FedAvg's cost is a dashed line.

    A method that uploads nothing is a dotted line at its accuracy.

    Args:
        rows: the rows of a report.

    Returns:
        The figure, a panel a setting.
    """
    styles = method_styles(row.method for row in rows)
    summaries = summarise(rows)
    figure, panels = _panels(len(summaries), styles, rows, height=3.4)
    for axes, summary in zip(panels, summaries, strict=True):
        uploading = [method for method in summary.methods if _bits(method) > 0]
        _scale_bits(axes, [_bits(method) / 1e6 for method in uploading])
        for method in summary.methods:
            if method not in uploading:
                colour = styles[method.method].colour
                axes.axhline(100 * method.accuracy.mean, color=colour, linestyle=":", linewidth=1.3)
            elif method.method == BASELINE:
                axes.axvline(_bits(method) / 1e6, color=INK, alpha=0.5, linestyle="--", linewidth=1)
        for group in _close_uploads(uploading):
            # FedAvg stands on its line, where it is one of the group.
            labels = [method.method for method in group]
            centre = labels.index(BASELINE) if BASELINE in labels else (len(group) - 1) / 2
            for index, method in enumerate(group):
                shift = (index - centre) * _SPACING
                place = axes.transData + ScaledTranslation(shift, 0, figure.dpi_scale_trans)
                _error_bars(axes, [_bits(method) / 1e6], [method], styles[method.method], transform=place)
        axes.set_xlabel("upload of all clients, Mbit")
        _finish_accuracy(axes, summary.methods, summary.setting.label)
    return figure


def _bits(method: MethodSummary) -> float:
    return method.measure("upload_bits").mean


def _close_uploads(methods: Sequence[MethodSummary]) -> list[list[MethodSummary]]:
    groups: list[list[MethodSummary]] = []
    for method in sorted(methods, key=_bits):
        if groups and _bits(method) <= _CLOSE * _bits(groups[-1][0]):
            groups[-1].append(method)
        else:
            groups.append([method])
    return [_baseline_amid(sorted(group, key=lambda method: method.method)) for group in groups]


def _baseline_amid(methods: list[MethodSummary]) -> list[MethodSummary]:
    baseline = [method for method in methods if method.method == BASELINE]
    others = [method for method in methods if method.method != BASELINE]
    half = len(others) // 2
    return others[:half] + baseline + others[half:]


def _scale_bits(axes: Axes, megabits: Sequence[float]) -> None:
    if not megabits:
        axes.set_xticks([])
        return
    axes.set_xscale("log")
    axes.set_xlim(min(megabits) / 2, max(megabits) * 2)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _finish_accuracy(axes: Axes, methods: Sequence[MethodSummary], title: str) -> None:
    ends = [
        100 * (method.accuracy.mean + sign * (method.accuracy.deviation or 0.0))
        for method in methods
        for sign in (-1, 1)
    ]
    margin = max(0.06 * (max(ends) - min(ends)), 2.0)
    axes.set_ylim(min(ends) - margin, max(ends) + margin)
    axes.set_ylabel("accuracy, %")
    panel_title(axes, title)
    plain_axes(axes, grid="y")


def time_figure(rows: Sequence[Row]) -> Figure:
    """Draw seconds of client training, client statistics and the server by method.

    Client seconds are sums over the clients. A bar is the mean over partitions and seeds, its error bar the
    deviation over seeds.

    Args:
        rows: the rows of a report.

    Returns:
        The figure, a line of three panels for each data set, model, number of clients and of rounds; where these are
        many, for each data set and model.
    """
    styles = method_styles(row.method for row in rows)
    families_of_rows = gather(sorted_rows(rows), lambda row: Setting.of(row).family)
    if by_network(families_of_rows):
        families_of_rows = gather(sorted_rows(rows), lambda row: f"{row.dataset}, {row.model}")
    groups = {family: gather(own, lambda row: row.method) for family, own in families_of_rows.items()}
    heights = [0.27 * len(methods) + 1.1 for methods in groups.values()]
    figure = new_figure(_WIDTH, sum(heights), gap=0.06)
    grid = figure.add_gridspec(len(groups), 3, height_ratios=heights)
    for line, (family, methods) in enumerate(groups.items()):
        labels = sorted(methods, key=lambda label: (label != BASELINE, label))
        for column, (quantity, seconds) in enumerate(_SECONDS.items()):
            axes = figure.add_subplot(grid[line, column])
            bars = [_over_seeds(methods[label], seconds) for label in labels]
            _draw_bars(axes, bars, [styles[label].colour for label in labels])
            names = [literal(label) for label in labels] if column == 0 else []
            axes.set_yticks(range(len(names)), names)
            axes.set_ylim(len(labels) - 0.4, -0.6)
            axes.set_xlabel(quantity)
            if column == 0:
                panel_title(axes, family)
            plain_axes(axes, grid="x")
            axes.tick_params(axis="y", length=0)
    return figure


def by_network(families_of_rows: Collection[str]) -> bool:
    """Say whether seconds are means over all settings of a data set and model.

    Args:
        families_of_rows: the families of a report.
    """
    return len(families_of_rows) > _MOST_LINES


_SECONDS: dict[str, Callable[[Row], float]] = {
    "client training, s": lambda row: row.client_train_seconds,
    "client statistics, s": lambda row: math.fsum(row.client_statistics_seconds.values()),
    "server, s": lambda row: row.server_seconds,
}


def _over_seeds(rows: Sequence[Row], seconds: Callable[[Row], float]) -> Measure:
    by_seed = gather(rows, lambda row: row.seed).values()
    return Measure.of([math.fsum(map(seconds, own)) / len(own) for own in by_seed])


def _draw_bars(axes: Axes, bars: Sequence[Measure], colours: Sequence[str]) -> None:
    top = max(bar.mean + (bar.deviation or 0.0) for bar in bars) or 1.0
    for place, (bar, colour) in enumerate(zip(bars, colours, strict=True)):
        axes.barh(place, bar.mean, height=0.62, color=colour, alpha=0.85, linewidth=0)
        end = bar.mean
        if bar.deviation:
            axes.errorbar(bar.mean, place, xerr=bar.deviation, color=INK, linewidth=0.9, capsize=2)
            end += bar.deviation
        text = "0" if bar.mean == 0 else f"{bar.mean:.3g}"
        axes.text(end + 0.02 * top, place, text, va="center", fontsize=8, color=INK)
    axes.set_xlim(0, 1.2 * top)
    axes.xaxis.set_major_locator(MaxNLocator(4))


def _error_bars(
    axes: Axes, places: Sequence[float], methods: Sequence[MethodSummary], style: MethodStyle, **artist: Any
) -> None:
    deviations = [100 * (method.accuracy.deviation or 0.0) for method in methods]
    appearance: dict[str, Any] = {
        "color": style.colour,
        "marker": style.marker,
        "markersize": 8 if style.marker == "*" else 5.5,
        "markerfacecolor": style.colour if methods[0].role is Role.ONE_NETWORK else "none",
        "linestyle": "none",
        "linewidth": 1.2,
        "elinewidth": 0.9,
        "capsize": 2,
    }
    axes.errorbar(
        places,
        [100 * method.accuracy.mean for method in methods],
        yerr=deviations if any(deviations) else None,
        **(appearance | artist),
    )


def _panels(
    count: int, styles: dict[str, MethodStyle], rows: Sequence[Row], *, height: float
) -> tuple[Figure, list[Axes]]:
    """Make a figure with as many panels as asked for and one legend of the methods below them."""
    columns = 3 if count == 3 or count > 4 else min(count, 2)
    lines = -(-count // columns)
    roles = {row.method: role_of(row) for row in rows}
    labels = {
        method: literal(method if roles[method] is Role.ONE_NETWORK else f"{method} ({roles[method]})")
        for method in styles
        if method in roles
    }
    longest = max(len(line) for label in labels.values() for line in label.splitlines())
    # In points: the line with its marker and the gaps, and a generous width for a letter.
    per_line = max(1, min(len(labels), int(72 * _WIDTH / (52 + 6 * longest))))
    figure = new_figure(_WIDTH, lines * height + 0.24 * -(-len(labels) // per_line), gap=0.06)
    axes = [figure.add_subplot(lines, columns, index + 1) for index in range(count)]
    handles = [
        Line2D(
            [],
            [],
            color=styles[method].colour,
            marker=styles[method].marker,
            linestyle=styles[method].line,
            markerfacecolor=styles[method].colour if roles[method] is Role.ONE_NETWORK else "none",
            linewidth=1.2,
            markersize=6,
            label=label,
        )
        for method, label in labels.items()
    ]
    legend_below(figure, columns=per_line, handle_length=2.6, handles=handles)
    return figure, axes
