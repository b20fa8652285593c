"""Figures of count matrices: the labels of each client, and the confusion of a classifier."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from numpy.typing import NDArray

from fedfisher_core.errors import InputError
from fedfisher_core.reporting.drawing import BLUE, INK, literal, new_figure
from fedfisher_core.reporting.formats import grouped

_MAX_ANNOTATED_COLUMNS = 12
_MAX_ANNOTATED_ROWS = 20
_MAX_TICKS = 50


def partition_figure(label_counts: NDArray[np.integer], class_names: list[str], title: str) -> Figure:
    """Draw the label distribution of each client as a grid, a darker cell for more examples.

    Args:
        label_counts: number of examples, shape (clients, classes).
        class_names: names of the classes.
        title: the figure's title.

    Returns:
        The figure; counts are written into the cells where they fit, each client's total is at the right.

    Raises:
        InputError: shapes that don't fit, or negative counts.
    """
    counts = _counts(label_counts, class_names, "label_counts")
    # The square root keeps a class with few examples apart from one with none.
    shades = np.sqrt(counts / max(counts.max(), 1))
    figure, axes = _grid(shades, title)
    _tick_classes(axes, class_names, axis="x")
    _ticks(axes, [str(client) for client in range(len(counts))], axis="y")
    axes.set_xlabel("class", fontsize=9, color=INK)
    axes.set_ylabel("client", fontsize=9, color=INK)
    _annotate(axes, shades, [[_short(count) for count in line] for line in counts])
    for client, total in enumerate(counts.sum(axis=1)):
        _right(axes, client, grouped(total))
    _right(axes, -0.95, "examples")
    return figure


def confusion_figure(matrix: NDArray[np.integer], class_names: list[str], title: str) -> Figure:
    """Draw a confusion matrix, each row as shares of the true class.

    Args:
        matrix: number of examples, shape (true class, predicted class).
        class_names: names of the classes.
        title: the figure's title.

    Returns:
        The figure; per cents are written into the cells where they fit, each class's accuracy at the right.

    Raises:
        InputError: shapes that don't fit, or negative counts.
    """
    counts = _counts(matrix, class_names, "matrix")
    if counts.shape[0] != counts.shape[1]:
        raise InputError(f"matrix has the shape {counts.shape}; it must be square")
    totals = counts.sum(axis=1, keepdims=True)
    shares = counts / np.maximum(totals, 1)
    figure, axes = _grid(np.sqrt(shares), title)
    _tick_classes(axes, class_names, axis="x")
    _tick_classes(axes, class_names, axis="y")
    axes.set_xlabel("predicted class", fontsize=9, color=INK)
    axes.set_ylabel("true class", fontsize=9, color=INK)
    percents = [[f"{100 * share:.0f}" if share else "" for share in line] for line in shares]
    _annotate(axes, np.sqrt(shares), percents)
    if len(counts) <= _MAX_TICKS:
        for index, total in enumerate(totals[:, 0]):
            _right(axes, index, f"{100 * shares[index, index]:.1f}" if total else "–")
        _right(axes, -0.95, "accuracy, %")
    return figure


def _counts(matrix: NDArray[np.integer], class_names: list[str], name: str) -> NDArray[np.integer]:
    counts = np.asarray(matrix)
    if counts.ndim != 2 or counts.shape[1] != len(class_names) or counts.size == 0:
        raise InputError(f"{name} has the shape {counts.shape}; it needs a row or more, and {len(class_names)} columns")
    if counts.min() < 0:
        raise InputError(f"{name} holds {counts.min()}; counts can't be negative")
    return counts


def _grid(shades: NDArray[np.floating], title: str) -> tuple[Figure, Axes]:
    rows, columns = shades.shape
    cell_width = 0.46 if columns <= _MAX_ANNOTATED_COLUMNS else max(0.085, min(0.3, 9.0 / columns))
    cell_height = 0.27 if rows <= _MAX_ANNOTATED_ROWS else max(0.085, min(0.16, 8.0 / rows))
    figure = new_figure(columns * cell_width + 1.5, rows * cell_height + 1.2)
    axes = figure.add_subplot()
    axes.set_facecolor("none")
    # One hue, from transparent to opaque, reads the same on a light and on a dark page.
    image = np.empty((rows, columns, 4))
    image[..., :3] = [int(BLUE[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    image[..., 3] = np.where(shades > 0, 0.08 + 0.92 * shades, 0.0)
    axes.imshow(image, aspect="auto", interpolation="none")
    axes.spines[:].set_color(INK)
    axes.spines[:].set_alpha(0.25)
    lines: dict[str, Any] = {"color": INK, "alpha": 0.1, "linewidth": 0.5}
    axes.vlines(np.arange(1, columns) - 0.5, -0.5, rows - 0.5, **lines)
    axes.hlines(np.arange(1, rows) - 0.5, -0.5, columns - 0.5, **lines)
    # A dollar sign is no mathematics.
    axes.set_title(title.replace("$", r"\$"), loc="left", fontsize=9.5, color=INK, fontweight="bold", pad=22)
    return figure, axes


def _tick_classes(axes: Axes, class_names: list[str], *, axis: str) -> None:
    _ticks(axes, [literal(name) for name in class_names], axis=axis)
    if axis == "x" and max(len(name) for name in class_names) > 3:
        axes.tick_params(axis="x", rotation=45)
        for label in axes.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")


def _ticks(axes: Axes, labels: list[str], *, axis: str) -> None:
    step = -(-len(labels) // _MAX_TICKS)
    places = range(0, len(labels), step)
    setter = axes.set_xticks if axis == "x" else axes.set_yticks
    setter(places, [labels[place] for place in places])
    size = 8 if len(labels) <= _MAX_ANNOTATED_ROWS else 6.5
    axes.tick_params(axis=axis, colors=INK, labelsize=size, length=0)  # type: ignore[arg-type]


def _annotate(axes: Axes, shades: NDArray[np.floating], texts: Sequence[Sequence[str]]) -> None:
    rows, columns = shades.shape
    if rows > _MAX_ANNOTATED_ROWS or columns > _MAX_ANNOTATED_COLUMNS:
        return
    for (row, column), shade in np.ndenumerate(shades):
        if text := texts[row][column]:
            colour = "#ffffff" if shade > 0.8 else INK
            # What lies within its cell needs no room: the layout need not measure it.
            axes.text(column, row, text, ha="center", va="center", fontsize=7.5, color=colour, in_layout=False)


def _right(axes: Axes, row: float, text: str) -> Text:
    size = 8 if axes.get_ylim()[0] <= _MAX_ANNOTATED_ROWS else 6.5
    place = axes.get_yaxis_transform()
    return axes.text(1.015, row, text, transform=place, ha="left", va="center", fontsize=size, color=INK)


def _short(count: int) -> str:
    if count == 0:
        return ""
    return str(count) if count < 10_000 else f"{count / 1000:.0f}k"
