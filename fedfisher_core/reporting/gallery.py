"""Images side by side, as a picture."""

import base64
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedfisher_core.reporting.drawing import INK, literal, new_figure, panel_title


@dataclass(frozen=True)
class Gallery:
    """Images side by side.

    Args:
        title: what they have in common.
        rows: what each row shows.
        images: in [0, 1], shape (rows, columns, channels, height, width).
    """

    title: str
    rows: tuple[str, ...]
    images: NDArray[np.floating]


def gallery_figure(gallery: Gallery) -> Figure:
    """Draw images in rows with their names.

    Args:
        gallery: the images.

    Returns:
        The figure.
    """
    rows, columns, channels, height, width = gallery.images.shape
    names = 0.5 + 0.08 * max(map(len, gallery.rows))
    figure = new_figure(names + 0.46 * columns, 0.5 + 0.46 * rows)
    axes = figure.add_subplot()
    # A white line parts the images.
    canvas = np.ones((channels, rows * (height + 2), columns * (width + 1)))
    for row in range(rows):
        for column in range(columns):
            top, left = row * (height + 2), column * (width + 1)
            canvas[:, top : top + height, left : left + width] = gallery.images[row, column]
    picture = canvas[0] if channels == 1 else canvas.transpose(1, 2, 0)
    axes.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_yticks([row * (height + 2) + height / 2 for row in range(rows)], [literal(name) for name in gallery.rows])
    axes.set_xticks([])
    axes.tick_params(colors=INK, labelsize=8, length=0)
    axes.spines[:].set_visible(False)
    panel_title(axes, gallery.title)
    return figure


def data_uri(png: bytes) -> str:
    """Write a picture so that a page carries it.

    Args:
        png: the picture.

    Returns:
        What an image's source is.
    """
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
