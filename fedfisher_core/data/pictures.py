"""The images of a column, decoded and brought to one size."""

import io
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedfisher_core.data.columns import Table
from fedfisher_core.errors import InputError
from fedfisher_core.layouts import Images


def images(table: Table, column: str, layout: Images) -> Tensor:
    """Decode images.

    Args:
        table: the split.
        column: of encoded images, such as PNG files, or of their paths.
        layout: their channels, and the size that others are brought to.

    Returns:
        uint8, shape (rows, channels, height, width).

    Raises:
        InputError: the column holds something else, or an image can't be read.
    """
    import datasets as hub
    from PIL import Image, UnidentifiedImageError

    _require_images(table, column)
    raw = table.rows.select_columns([column]).cast_column(column, hub.Image(decode=False))
    mode = "L" if layout.channels == 1 else "RGB"
    size = (layout.width, layout.height)
    decoded = torch.empty((len(raw), *layout.shape), dtype=layout.stored)
    for row, record in enumerate(raw):
        try:
            with Image.open(_stream(record[column])) as image:
                pixels = image.convert(mode)
                if pixels.size != size:
                    pixels = pixels.resize(size, Image.Resampling.BILINEAR)
                array = np.array(pixels, dtype=np.uint8)
        except (UnidentifiedImageError, OSError, SyntaxError, TypeError) as error:
            raise table.refuse(row, f"the image can't be read: {error}") from error
        decoded[row] = torch.from_numpy(array.reshape(layout.height, layout.width, layout.channels)).permute(2, 0, 1)
    return decoded


def _require_images(table: Table, column: str) -> None:
    """Refuse columns of anything but encoded images; of numbers, the hub's package would make pictures."""
    import datasets as hub
    import pyarrow

    if isinstance(table.rows.features[column], hub.Image):
        return
    kind = table.rows.data.table.schema.field(column).type
    known = (
        pyarrow.types.is_binary,
        pyarrow.types.is_large_binary,
        pyarrow.types.is_string,
        pyarrow.types.is_large_string,
    )
    if any(is_kind(kind) for is_kind in known):
        return
    if pyarrow.types.is_struct(kind) and {field.name for field in kind} == {"bytes", "path"}:
        return
    numbers = pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind)
    raise InputError(f"{table.where}: column {column!r} holds {'numbers' if numbers else kind}, not images")


def _stream(record: dict[str, Any] | None) -> Any:
    if record is None or (record["bytes"] is None and record["path"] is None):
        raise TypeError("the cell is empty")
    return io.BytesIO(record["bytes"]) if record["bytes"] is not None else record["path"]
