"""Matrices of counts: the labels of each client, and the confusion of a classifier."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.engine.errors import InputError
from fedfisher_core.reporting.charts import heat_map, to_png
from fedfisher_core.reporting.formats import grouped

_MOST_CELLS = 2000
"""A matrix of more cells counts clients instead, as a line for each would be too many to read."""


@dataclass(frozen=True)
class Grid:
    """A matrix as a table of shaded cells.

    Args:
        rows: what a row is, and the name of each.
        columns: what a column is, and the name of each.
        shades: of each cell, from 0 for an empty one to 1.
        cells: text of each cell.
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
