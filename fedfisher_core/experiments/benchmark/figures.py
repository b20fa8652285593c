"""Charts of a benchmark, and matrices of counts: labels of each client, and the confusion of a classifier."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.benchmark.algorithms import AlgorithmTable
from fedfisher_core.experiments.benchmark.answer import Standing, setting_names
from fedfisher_core.experiments.benchmark.rows import Role, Seconds
from fedfisher_core.experiments.benchmark.summary import MethodSummary, SettingSummary
from fedfisher_core.reporting.charts import (
    Chart,
    Dot,
    Point,
    Trade,
    coloured,
    dot_plot,
    heat_map,
    line_chart,
    to_png,
    trade_off_chart,
)
from fedfisher_core.reporting.formats import grouped, in_words
from fedfisher_core.reporting.measure import Measure, gather

_MOST_CELLS = 2000
"""A matrix of more cells counts clients instead, as a line for each would be too many to read."""

_GROUPS = {Role.ONE_NETWORK: "One network", Role.ENSEMBLE: "Ensembles", Role.REFERENCE: "References"}
_ACCURACY = "accuracy, %"


@dataclass(frozen=True)
class Grid:
    """A matrix as a table of shaded cells.

    Args:
        rows: what a row is, and the name of each.
        columns: what a column is, and the name of each.
        shades: of each cell, from 0 for an empty one to 1.
        sums: what the column at the right is, and its text in each row.
    """

    title: str
    rows: tuple[str, Sequence[str]]
    columns: tuple[str, Sequence[str]]
    shades: Sequence[Sequence[float]]
    cells: Sequence[Sequence[str]]
    sums: tuple[str, Sequence[str]]

    @property
    def lines(self) -> list[tuple[str, list[tuple[str, float]], str]]:
        """For each row its name, the text and the shade of its cells, and its sum."""
        shaded = [list(zip(texts, shades, strict=True)) for texts, shades in zip(self.cells, self.shades, strict=True)]
        return list(zip(self.rows[1], shaded, self.sums[1], strict=True))

    def png(self) -> bytes:
        """Draw it as a PNG file."""
        cells = [
            (column, f"{row} ({total})", shade, text)
            for row, shaded, total in self.lines
            for column, (text, shade) in zip(self.columns[1], shaded, strict=True)
        ]
        return to_png(heat_map(cells, axes=(self.columns[0], f"{self.rows[0]} ({self.sums[0]})"), title=self.title))


def partition_grid(
    label_counts: NDArray[np.integer], class_names: Sequence[str], title: str, *, levels: Sequence[str] = ()
) -> Grid:
    """Picture the label distribution of each client, with darker cells for more examples and totals at the right.

    Where these would be too many cells to read, it shows instead how many clients hold how many examples of each class,
    and of all classes.

    Args:
        label_counts: number of examples, shape (clients, classes).
        levels: what is said of each client after its number, such as the level of its shift; empty for nothing.

    Raises:
        InputError: shapes do not fit, or counts are negative.
    """
    counts = _counts(label_counts, class_names, "label_counts")
    if levels and len(levels) != len(counts):
        raise InputError(f"levels has {len(levels)} names; it needs one for each of the {len(counts)} clients")
    if counts.size > _MOST_CELLS:
        return _spread_grid(counts, class_names, title)
    said = [f" ({level})" for level in levels] or [""] * len(counts)
    return Grid(
        title=title,
        rows=("client", [f"{client}{level}" for client, level in enumerate(said)]),
        columns=("class", class_names),
        shades=_shades(counts / max(counts.max(), 1)),
        cells=[[_short(count) for count in line] for line in counts],
        sums=("examples", [grouped(total) for total in counts.sum(axis=1)]),
    )


def _spread_grid(counts: NDArray[np.integer], class_names: Sequence[str], title: str) -> Grid:
    """Count the clients that hold none, one, two or three, four to seven, ... examples of each class."""
    totals = counts.sum(axis=1)
    doublings = int(totals.max()).bit_length()
    starts = [0, *(2**power for power in range(doublings))]
    names = [str(start) if start < 2 else f"{start}–{2 * start - 1}" for start in starts]

    def clients_by_holding(holdings: NDArray[np.integer]) -> NDArray[np.integer]:
        return np.bincount(np.digitize(holdings, starts) - 1, minlength=len(starts))

    held = np.stack([clients_by_holding(column) for column in counts.T], axis=1)
    return Grid(
        title=f"{title}: how many of {grouped(len(counts))} clients hold how many",
        rows=("examples that a client holds", names),
        columns=("class", class_names),
        shades=_shades(held / held.max()),
        cells=[[_short(count) for count in line] for line in held],
        sums=("all classes", [grouped(count) for count in clients_by_holding(totals)]),
    )


def confusion_grid(matrix: NDArray[np.integer], class_names: Sequence[str], title: str) -> Grid:
    """Picture a confusion matrix, each row in per cent of the true class, with each class's accuracy at the right.

    Args:
        matrix: number of examples, shape (true class, predicted class).

    Raises:
        InputError: shapes do not fit, or counts are negative.
    """
    counts = _counts(matrix, class_names, "matrix")
    if counts.shape[0] != counts.shape[1]:
        raise InputError(f"matrix has the shape {counts.shape}; it must be square")
    totals = counts.sum(axis=1)
    shares = counts / np.maximum(totals, 1)[:, None]
    right = [f"{100 * share:.1f}" if total else "–" for share, total in zip(np.diag(shares), totals, strict=True)]
    return Grid(
        title=title,
        rows=("true class", class_names),
        columns=("predicted class", class_names),
        shades=_shades(shares),
        cells=[[f"{100 * share:.0f}" if share else "" for share in line] for line in shares],
        sums=("accuracy, %", right),
    )


def _counts(matrix: NDArray[np.integer], class_names: Sequence[str], name: str) -> NDArray[np.integer]:
    counts = np.asarray(matrix)
    if counts.ndim != 2 or counts.shape[1] != len(class_names) or counts.size == 0:
        raise InputError(f"{name} has the shape {counts.shape}; it needs a row or more, and {len(class_names)} columns")
    if counts.min() < 0:
        raise InputError(f"{name} holds {counts.min()}; counts can't be negative")
    return counts


def _shades(parts: NDArray[np.floating]) -> list[list[float]]:
    # The square root makes a class with few examples look different from one with none.
    return np.sqrt(parts).round(2).tolist()


def _short(count: int) -> str:
    if count == 0:
        return ""
    return str(count) if count < 10_000 else f"{count / 1000:.0f}k"


def means_chart(found: Sequence[Standing]) -> Chart:
    """Draw the mean accuracy of each method over settings, with its 95 % interval over seeds."""
    most = max(one.num_settings for one in found)
    return dot_plot([_dot(one, most) for one in found], f"mean {_ACCURACY}" if most > 1 else _ACCURACY)


def _dot(one: Standing, most: int) -> Dot:
    interval = None if one.mean is None else one.mean.interval
    low, high = (None, None) if interval is None else (max(100 * interval[0], 0.0), min(100 * interval[1], 100.0))
    fewer = "" if one.num_settings == most else f" ({one.num_settings} of {most} settings)"
    # An interval is of the seeds that all settings have, and so is its middle.
    mean = 100 * (one.line.mean("accuracy") if one.mean is None or interval is None else one.mean.mean)
    return Dot(one.method, one.name + fewer, mean, low, high, _GROUPS[one.line.role])


def settings_charts(summaries: Sequence[SettingSummary], found: Sequence[Standing]) -> list[Chart]:
    """Draw accuracies by setting, a chart for each group of settings that differ only in how the data is split.

    Groups of one setting share a chart. The first eight methods of one network in the table of accuracies have
    a colour, which is the same in all charts.
    """
    if len(summaries) < 2:
        return []
    colours = coloured(one.method for one in found if one.line.role is Role.ONE_NETWORK)
    families = gather(summaries, lambda summary: summary.setting.family)
    charts = [_settings_chart(own, family, colours) for family, own in families.items() if len(own) > 1]
    alone = [own[0] for own in families.values() if len(own) == 1]
    return [*charts, *([_settings_chart(alone, "", colours)] if alone else [])]


def _settings_chart(summaries: Sequence[SettingSummary], title: str, colours: dict[str, str]) -> Chart:
    names = setting_names([summary.setting for summary in summaries])
    points = [
        _point(method, names[summary.setting], f"{summary.setting.partition} {summary.setting.shift or ''}")
        for summary in summaries
        for method in summary.methods
    ]
    own = {method: colour for method, colour in colours.items() if any(one.method == method for one in points)}
    return line_chart(points, axes=("", _ACCURACY), title=title, colours=own)


def _point(method: MethodSummary, setting: str, joined: str) -> Point:
    return Point(method.method, in_words(method.method), setting, *_bar(method.accuracy), dash=joined)


def _bar(accuracy: Measure) -> tuple[float, float | None, float | None]:
    mean, spread = 100 * accuracy.mean, accuracy.deviation
    if spread is None:
        return mean, None, None
    return round(mean, 3), round(mean - 100 * spread, 3), round(mean + 100 * spread, 3)


def _runs(one: Standing) -> list[tuple[int, ...]]:
    """The seeds that it ran with in each setting."""
    return [() if cell is None else tuple(cell.seeds) for cell in one.line.cells]


def trade_off_charts(found: Sequence[Standing], seconds: Seconds) -> list[Chart]:
    """Draw accuracy against the upload and against the server's seconds, of methods with most settings and seeds."""
    ranked = [one for one in found if one.line.role is Role.ONE_NETWORK]
    whole = [one for one in ranked if _runs(one) == _runs(ranked[0])]
    if len(whole) < 3:
        return []
    costs = {
        "upload of all clients, Mbit": ("upload_bits", 1e6),
        f"server, {seconds.unit}": (seconds.server, 1.0),
    }
    return [
        trade_off_chart(
            [
                Trade(one.method, one.name, one.line.mean(field) / unit, 100 * one.line.mean("accuracy"))
                for one in whole
                if one.line.mean(field) > 0
            ],
            axes=(axis, _ACCURACY),
            logarithmic_cost=field != "upload_bits",
        )
        for axis, (field, unit) in costs.items()
        if any(one.line.mean(field) > 0 for one in whole)
    ]


def rounds_charts(tables: Sequence[AlgorithmTable]) -> list[Chart]:
    """Draw accuracy against rounds and against bits, two charts a setting."""
    return [
        line_chart(
            [
                Point(one.name, in_words(one.name), x, *_bar(point.accuracy))
                for one in table.algorithms
                for point in one.points
                for x in (point.bits / 8e6 if by_bits else point.round,)
            ],
            axes=("sent until then, both ways, MB" if by_bits else "round", _ACCURACY),
            title="" if by_bits else table.setting.label,
        )
        for table in tables
        for by_bits in (False, True)
    ]
