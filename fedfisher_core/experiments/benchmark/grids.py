"""Pictures of count matrices: the labels of each client, and the confusion of a classifier.

They are tables of shaded cells, which a template writes as SVG in a thousandth of the time that a chart takes.
"""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from fedfisher_core.errors import InputError
from fedfisher_core.reporting.formats import grouped
from fedfisher_core.reporting.page import template_environment

_INK = "#1a1d22"
_BLUE = (0, 114, 178)
_MAX_ANNOTATED_COLUMNS = 12
_MAX_ANNOTATED_ROWS = 20
_MAX_TICKS = 50
_MAX_CLIENTS = 400
"""Beyond, a picture counts clients, as nobody reads a line of each."""
_LETTER = 0.62
"""Width of a letter, in heights of its font."""


@dataclass(frozen=True)
class Grid:
    """A matrix as a picture.

    Args:
        title: above it.
        rows: what a row is, and the name of each.
        columns: what a column is, and the name of each.
        shades: from 0 for an empty cell to 1, shape (rows, columns).
        cells: what is written into each cell where there is room.
        sums: what the column at the right is, and its text in each row.
    """

    title: str
    rows: tuple[str, Sequence[str]]
    columns: tuple[str, Sequence[str]]
    shades: NDArray[np.floating]
    cells: Sequence[Sequence[str]]
    sums: tuple[str, Sequence[str]]

    def svg(self) -> Markup:
        """Draw it in the text's colour, on no background; equal grids give equal text."""
        (rows, columns), names = self.shades.shape, self.columns[1]
        longest = max(map(len, names))
        slanted = longest > 3
        return Markup(
            template_environment()
            .get_template("grid.svg.j2")
            .render(
                grid=self,
                image=base64.b64encode(self._pixels()).decode(),
                shape=(rows, columns),
                cell=(
                    38.0 if columns <= _MAX_ANNOTATED_COLUMNS else float(np.clip(720 / columns, 7, 24)),
                    21.0 if rows <= _MAX_ANNOTATED_ROWS else float(np.clip(640 / rows, 7, 12)),
                ),
                # A slanted name reaches as far to the left as it does down.
                left=max(34 + 11 * _LETTER * max(map(len, self.rows[1])), 8 * _LETTER * longest if slanted else 0),
                bottom=36 + (8 * _LETTER * longest if slanted else 6),
                steps=(-(-rows // _MAX_TICKS), -(-columns // _MAX_TICKS)),
                slanted=slanted,
                written=rows <= _MAX_ANNOTATED_ROWS and columns <= _MAX_ANNOTATED_COLUMNS,
                letter=_LETTER,
            )
        )

    def _pixels(self) -> bytes:
        """One pixel a cell as PNG: one hue, from transparent to opaque, reads the same on light and on dark pages."""
        image = np.empty((*self.shades.shape, 4), np.uint8)
        image[..., :3] = _BLUE
        image[..., 3] = np.where(self.shades > 0, np.rint(255 * (0.08 + 0.92 * self.shades)), 0)
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "png")
        return buffer.getvalue()

    def file(self) -> bytes:
        """Draw it as an SVG file, in dark ink on white."""
        head, rest = self.svg().split(">", 1)
        return f'{head} style="color: {_INK}; background: white">{rest}'.encode()


def partition_grid(
    label_counts: NDArray[np.integer], class_names: Sequence[str], title: str, *, levels: Sequence[str] = ()
) -> Grid:
    """Picture the label distribution of each client, a darker cell for more examples; of very many, how they spread.

    Args:
        label_counts: number of examples, shape (clients, classes).
        class_names: names of the classes.
        title: the picture's title.
        levels: what is said of each client, such as the level of its shift; nothing where there is nothing to say.

    Returns:
        The picture, with each client's total at the right, and what is said of it beside its number. Of more than 400
        clients, how many hold how many examples of each class, and at the right of all classes together.

    Raises:
        InputError: shapes that don't fit, or negative counts.
    """
    counts = _counts(label_counts, class_names, "label_counts")
    if levels and len(levels) != len(counts):
        raise InputError(f"levels has {len(levels)} names; it needs one for each of the {len(counts)} clients")
    if len(counts) > _MAX_CLIENTS:
        return _spread_grid(counts, class_names, title)
    beside = [f" ({level})" for level in levels] or [""] * len(counts)
    return Grid(
        title=title,
        rows=("client", [f"{client}{level}" for client, level in enumerate(beside)]),
        columns=("class", class_names),
        # The square root keeps a class with few examples apart from one with none.
        shades=np.sqrt(counts / max(counts.max(), 1)),
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
        shades=np.sqrt(held / held.max()),
        cells=[[_short(count) for count in line] for line in held],
        sums=("all classes", [grouped(count) for count in clients_by_holding(totals)]),
    )


def confusion_grid(matrix: NDArray[np.integer], class_names: Sequence[str], title: str) -> Grid:
    """Picture a confusion matrix, each row as per cents of the true class.

    Args:
        matrix: number of examples, shape (true class, predicted class).
        class_names: names of the classes.
        title: the picture's title.

    Returns:
        The picture, with each class's accuracy at the right.

    Raises:
        InputError: shapes that don't fit, or negative counts.
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
        shades=np.sqrt(shares),
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


def _short(count: int) -> str:
    if count == 0:
        return ""
    return str(count) if count < 10_000 else f"{count / 1000:.0f}k"
