"""The images of a column, decoded and brought to one size."""

import io
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedfisher_core.data.columns import Table
from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.errors import InputError
from fedfisher_core.layouts import Images, require_images

ImageSizes = Literal["same", "any"]
"""Whether images of several sizes may be in one data set."""

_NAMED = 5
_AT_ONCE = 256


def images(tables: Sequence[Table], spec: DatasetSpec, *, sizes: ImageSizes) -> list[Tensor]:
    """Decode the images of a data set.

    Args:
        tables: its splits, each with a column of encoded images, such as PNG files, or of their paths.
        spec: the data set; its layout says how many channels images have, and the size that others are brought to.
        sizes: whether they may differ in size among themselves.

    Returns:
        A tensor a split: uint8, shape (rows, channels, height, width).

    Raises:
        InputError: the column holds something else, an image can't be read, or sizes differ that may not.
    """
    layout = require_images(spec.inputs, f"data set {spec.name!r}")
    found: Counter[tuple[int, int]] = Counter()
    decoded = []
    for table in tables:
        pixels, counts = _decode(table, table.column(spec.image_columns, "image"), layout)
        decoded.append(pixels)
        found += counts
    if sizes == "same" and len(found) > 1:
        named = ", ".join(f"{height}x{width} ({count:,})" for (width, height), count in found.most_common(_NAMED))
        more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
        raise InputError(
            f"data set {spec.name!r} has images of {len(found):,} sizes: {named}{more}; allowed: images of one size, "
            f"or data.image_sizes=any, which brings each to {layout.height}x{layout.width}"
        )
    return decoded


def _decode(table: Table, column: str, layout: Images) -> tuple[Tensor, Counter[tuple[int, int]]]:
    """Decode the images of one split, and count those of each width and height."""
    import datasets as hub
    from PIL import Image, UnidentifiedImageError

    found: Counter[tuple[int, int]] = Counter()
    _require_images(table, column)
    raw = table.rows.select_columns([column]).cast_column(column, hub.Image(decode=False))
    mode = "L" if layout.channels == 1 else "RGB"
    size = (layout.width, layout.height)
    decoded = torch.empty((len(raw), *layout.shape), dtype=layout.stored)
    # Rows taken one by one and assigned by torch, and copies of what has its mode already, take as long again.
    filled = decoded.numpy()
    records = (record for batch in raw.iter(batch_size=_AT_ONCE) for record in batch[column])
    for row, record in enumerate(records):
        try:
            with Image.open(_stream(record)) as image:
                found[image.size] += 1
                pixels = image if image.mode == mode else image.convert(mode)
                if pixels.size != size:
                    pixels = pixels.resize(size, Image.Resampling.BILINEAR)
                array = np.asarray(pixels)
        except (UnidentifiedImageError, OSError, SyntaxError, TypeError) as error:
            raise table.refuse(row, f"the image can't be read: {error}") from error
        filled[row] = array.reshape(layout.height, layout.width, layout.channels).transpose(2, 0, 1)
    return decoded, found


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
