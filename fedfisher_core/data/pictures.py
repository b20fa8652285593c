"""The images of a column: decoded, made upright, opaque and 8-bit, and brought to one size."""

import hashlib
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal
from warnings import catch_warnings, simplefilter

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageFile, ImageOps, UnidentifiedImageError
from torch import Tensor

from fedfisher_core.data.layouts import Images, require_images
from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.data.tables import Table
from fedfisher_core.engine.errors import InputError, shortened, shown

Mode = Literal["L", "RGB"]
"""Pillow's names of 8-bit grey, and of 8-bit red, green and blue."""

BACKGROUND = "white"
"""The colour behind transparent pixels."""

_CONVERTED = ("1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr", "HSV", "LAB")
"""Modes of 8 bits or less that Pillow converts without clipping values."""

_GREY_16 = ("I;16", "I;16L", "I;16B", "I;16N")
_SCALED = ("1", "L;2", "L;4", "I;16B", "RGB;16B")
"""How PNG files store pixels that Pillow scales to 8 bits, or leaves at 16."""


@contextmanager
def no_bombs() -> Iterator[None]:
    """Refuse pictures with so many pixels that Pillow would only warn."""
    with catch_warnings():
        simplefilter("error", Image.DecompressionBombWarning)
        yield


def decode(encoded: bytes | Path, mode: Mode, size: tuple[int, int]) -> tuple[Image.Image, tuple[int, int]]:
    """Decode a picture as the decoder of the hub's package does, and bring it to one form.

    Args:
        encoded: the content of a file such as a PNG, or its path.
        size: width and height of the result.

    Returns:
        The picture, and its original width and height.

    Raises:
        ValueError: its pixels have no unique 8-bit form, or nothing of it shows on the background.
        Exception: Pillow's decoders raise errors of nearly every class at damaged files.
    """
    try:
        opened = Image.open(io.BytesIO(encoded) if isinstance(encoded, bytes) else encoded)
    except UnidentifiedImageError as error:
        # Pillow's message contains the address of an object in memory.
        raise ValueError("Pillow knows no format that begins so, or its header is damaged") from error
    with opened:
        stored = _stored(opened)
        opened.load()
        # Most small pictures have no metadata, and looking for some takes long compared with decoding them.
        picture = _upright(opened) if opened.info else opened
        if opened.format == "PPM" and picture.mode == "I":
            # Pillow scales all depths of PGM files above 8 bits to 16.
            picture = picture.convert("I;16")
        found = picture.size
        if picture.mode != mode or "transparency" in picture.info:
            picture = _of_mode(picture, mode, stored)
        if found != size:
            picture = picture.resize(size, Image.Resampling.BILINEAR)
        return picture, found


def _stored(opened: ImageFile.ImageFile) -> str:
    """How the file stores pixels, in Pillow's words, before they are loaded; empty if it does not say."""
    found = opened.tile[0].args if opened.tile else ""
    return str(found[0] if isinstance(found, tuple) and found else found)


def _upright(picture: Image.Image) -> Image.Image:
    """Rotate a picture as its EXIF orientation says."""
    if picture.getexif().get(ExifTags.Base.Orientation) is None:
        return picture
    return ImageOps.exif_transpose(picture)


def _of_mode(picture: Image.Image, mode: Mode, stored: str) -> Image.Image:
    """Convert pixels to 8 bits a channel, on the background."""
    if picture.mode in _GREY_16 and "transparency" not in picture.info:
        shift = 4 if stored == "I;12" else 8
        picture = Image.fromarray((np.asarray(picture) >> shift).astype(np.uint8))
    elif picture.has_transparency_data:
        if picture.mode != "P" and stored in _SCALED:
            # Pillow does not scale the value that means transparent with the pixels.
            raise ValueError(
                f"its pixels are stored as {stored!r}, and one value means transparent; allowed: an alpha channel"
            )
        picture = _on_background(picture)
    if picture.mode not in _CONVERTED:
        raise ValueError(
            f"its pixels have Pillow's mode {picture.mode!r}, and nothing says which of their values is white; "
            "allowed: 8 bits a channel, or 16 of grey"
        )
    # Pillow converts LAB to grey only by way of colours.
    return (picture.convert("RGB") if picture.mode == "LAB" else picture).convert(mode)


def _on_background(picture: Image.Image) -> Image.Image:
    layers = picture.convert("RGBA")
    shown = Image.alpha_composite(Image.new("RGBA", picture.size, BACKGROUND), layers).convert("RGB")
    if _is_plain(shown) and not _is_plain(layers):
        raise ValueError(
            f"it has transparent pixels, and nothing of it shows on {BACKGROUND}; allowed: pictures that show, or that "
            "are opaque"
        )
    return shown


def _is_plain(picture: Image.Image) -> bool:
    """Whether all pixels of a picture of several channels are the same."""
    return all(least == most for least, most in (band.getextrema() for band in picture.split()))


ImageSizes = Literal["same", "any"]
"""Whether images of several sizes may be in one data set."""

_NAMED = 5
_AT_ONCE = 256


@dataclass(frozen=True)
class _Cell:
    """An image in a table.

    Args:
        data: the content of a file such as a PNG.
        path: of such a file; used if there is no data.
    """

    row: int
    data: bytes | None
    path: str | None


def images(tables: Sequence[tuple[Table, NDArray[np.int64]]], spec: DatasetSpec, *, sizes: ImageSizes) -> list[Tensor]:
    """Decode images of a data set.

    Args:
        tables: splits with a column of encoded images, such as PNG files, or of their paths, each with the rows to
            decode, in rising order.
        spec: its layout gives the number of channels and the size to which images are resized.

    Returns:
        A tensor for each table: uint8, shape (rows, channels, height, width).

    Raises:
        InputError: the column holds something else, an image can't be read, or sizes differ that may not.
    """
    layout = require_images(spec.inputs, f"data set {spec.name!r}")
    found: Counter[tuple[int, int]] = Counter()
    decoded = []
    for table, rows in tables:
        pixels, counts = _decode(table, table.column(spec.image_columns, "image"), rows, layout)
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


def _decode(
    table: Table, column: str, rows: NDArray[np.int64], layout: Images
) -> tuple[Tensor, Counter[tuple[int, int]]]:
    mode: Literal["L", "RGB"] = "L" if layout.channels == 1 else "RGB"
    width, height = layout.width, layout.height
    found: Counter[tuple[int, int]] = Counter()
    decoded = torch.empty((len(rows), *layout.shape), dtype=layout.stored)
    filled, cells = decoded.numpy(), _cells(table, column, rows)
    for start in range(0, len(rows), _AT_ONCE):
        count = min(_AT_ONCE, len(rows) - start)
        # Making an array of each small image would take nearly half as long as decoding it.
        sheet = Image.new(mode, (width, height * count))
        with no_bombs():
            for place, cell in enumerate(islice(cells, count)):
                try:
                    image, size = decode(_encoded(cell), mode, (width, height))
                except Exception as error:  # Pillow's decoders raise nearly anything at damaged files.
                    raise table.refuse(cell.row, f"the image can't be read: {_reason(error)}") from error
                found[size] += 1
                sheet.paste(image, (0, place * height))
        pixels = np.asarray(sheet).reshape(count, height, width, layout.channels)
        filled[start : start + count] = pixels.transpose(0, 3, 1, 2)
    return decoded, found


def named_files(table: Table, column: str) -> dict[str, str]:
    """Digest the files that a column of images names, by path; InputError if a file or the column can't be read."""
    found: dict[str, str] = {}
    for cell in _cells(table, column, np.arange(table.size)):
        if cell.data is None and cell.path is not None and cell.path not in found:
            try:
                with _file(cell.path).open("rb") as file:
                    found[cell.path] = hashlib.file_digest(file, "sha256").hexdigest()
            except (OSError, ValueError) as error:
                raise table.refuse(cell.row, f"the image can't be read: {_reason(error)}") from error
    return found


def _cells(table: Table, column: str, rows: NDArray[np.int64]) -> Iterator[_Cell]:
    fields = _fields(table, column, table.schema.field(column).type)
    cells = table.read([column]).column(0)
    begin = 0
    for chunk in cells.chunks:
        there = rows[(rows >= begin) & (rows < begin + len(chunk))]
        for start in range(0, len(there), _AT_ONCE):
            some = there[start : start + _AT_ONCE]
            for row, cell in zip(some.tolist(), chunk.take(some - begin).to_pylist(), strict=True):
                # A cell without fields is the data or the path itself.
                named = cell if isinstance(cell, dict) else {field: cell for field in fields}
                yield _Cell(row, named.get("bytes"), named.get("path"))
        begin += len(chunk)


def _fields(table: Table, column: str, kind: Any) -> set[str]:
    """The fields of a column's cells: data, paths or both; any other column holds no images."""
    from pyarrow import types

    data, path = (types.is_binary, types.is_large_binary), (types.is_string, types.is_large_string)
    known = {"bytes": data, "path": path}
    for field, kinds in known.items():
        if any(is_kind(kind) for is_kind in kinds):
            return {field}
    fields = {field.name for field in kind} if types.is_struct(kind) else set()
    if fields and all(any(is_kind(field.type) for is_kind in known.get(field.name, ())) for field in kind):
        return fields
    numbers = types.is_integer(kind) or types.is_floating(kind)
    raise InputError(f"{table.where}: column {column!r} holds {'numbers' if numbers else kind}, not images")


def _encoded(cell: _Cell) -> bytes | Path:
    if cell.data is not None:
        return cell.data
    if cell.path is None:
        raise ValueError("the cell is empty")
    return _file(cell.path)


def _file(path: str) -> Path:
    """Refuse a path that is no file: an address, or a pipe that would be waited for."""
    file = Path(path)
    if not file.is_file():
        raise ValueError(
            f"its cell names {shown(path)}, which is no file here; allowed: a file, or the image in the cell"
        )
    return file


def _reason(error: Exception) -> str:
    return shortened(str(error)) or type(error).__name__
