"""Images side by side: as strips of a page, which scales them, and as a PNG file."""

import base64
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image


@dataclass(frozen=True)
class Gallery:
    """Images side by side.

    Args:
        images: in [0, 1], shape (rows, columns, channels, height, width).
    """

    title: str
    rows: tuple[str, ...]
    images: NDArray[np.floating]

    def shown(self) -> dict[str, Any]:
        """Write it as plain data: the title, and each row's name with its images in one PNG picture."""
        strips = [base64.b64encode(_png(images[None])).decode() for images in self.images]
        return {
            "title": self.title,
            "columns": self.images.shape[1],
            "rows": [{"name": name, "png": png} for name, png in zip(self.rows, strips, strict=True)],
        }

    def png(self) -> bytes:
        """Draw all rows without their names as a PNG file."""
        return _png(self.images)


def _png(images: NDArray[np.floating]) -> bytes:
    rows, columns, channels, height, width = images.shape
    # White lines separate the images.
    canvas = np.ones((channels, rows * (height + 1) - 1, columns * (width + 1) - 1))
    for row in range(rows):
        for column in range(columns):
            top, left = row * (height + 1), column * (width + 1)
            canvas[:, top : top + height, left : left + width] = images[row, column]
    pixels = np.rint(255 * canvas).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels[0] if channels == 1 else pixels.transpose(1, 2, 0)).save(buffer, "png", optimize=True)
    return buffer.getvalue()
