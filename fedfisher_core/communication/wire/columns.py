"""Quantisation of vectors, each at its own width and range."""

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.communication.wire.packing import Codes
from fedfisher_core.communication.wire.quantisers import (
    midrise_codes,
    midrise_values,
    short_float_codes,
    short_float_values,
)

MAX_WIDTH = 16
RANGE_BITS = 16
# Half-ranges, in standard deviations, at which 2**width equal intervals have the least error for a normal
# distribution (Max 1960, table 2); from 7 bits on the largest entry is about as good.
_NORMAL_RANGES = {1: 1.596, 2: 1.991, 3: 2.344, 4: 2.680, 5: 3.010, 6: 3.331}
# Entries of one call: its intermediate results fit into a core's own cache.
_BLOCK = 2**15

Rows = NDArray[np.float64]
Mask = NDArray[np.bool_]


def row_errors(rows: Rows, free: Mask, width: int) -> Rows:
    """Squared error of each row at one width.

    Args:
        rows: vectors, shape (r, n).
        free: which of their entries are sent, same shape; the others are 0.
        width: bits an entry, 1 to 16.

    Returns:
        Shape (r,). Beyond 6 bits, errors are spread evenly over an interval, and its size gives them.
    """
    if width in _NORMAL_RANGES:
        return _best_range(rows, free, width)[1]
    cell = 2 * np.abs(rows).max(axis=1, initial=0) / 2**width
    return free.sum(axis=1) * np.square(cell) / 12


def row_ranges(rows: Rows, free: Mask, widths: NDArray[np.int64]) -> Codes:
    """Choose the range that each row's codes cover, encoded in 16 bits; shapes are those of `row_errors`.

    Args:
        widths: bits an entry of each row, shape (r,).
    """
    ranges = np.abs(rows).max(axis=1, initial=0)
    for width in set(widths.tolist()) & set(_NORMAL_RANGES):
        chosen = widths == width
        ranges[chosen] = _best_range(rows[chosen], free[chosen], width)[0]
    return short_float_codes(ranges, RANGE_BITS, upwards=True)


def encode_rows(rows: Rows, ranges: Codes, widths: NDArray[np.int64]) -> Codes:
    """Codes of all entries at each row's range and width, in the rows' shape."""
    return midrise_codes(rows, short_float_values(ranges, RANGE_BITS)[:, None], widths[:, None])


def decode_rows(codes: Codes, ranges: Codes, widths: NDArray[np.int64], free: Mask) -> Rows:
    """Undo `encode_rows`; entries that are not free are 0."""
    scale = short_float_values(ranges, RANGE_BITS)[:, None]
    return np.where(free, midrise_values(codes, scale, widths[:, None]), 0.0)


def _best_range(rows: Rows, free: Mask, width: int) -> tuple[Rows, Rows]:
    """The better range, the largest entry or the normal distribution's best, with its squared error."""
    size = max(1, _BLOCK // max(rows.shape[1], 1))
    parts = [
        _best_range_of_block(rows[start : start + size], free[start : start + size], width)
        for start in range(0, max(len(rows), 1), size)
    ]
    ranges, errors = zip(*parts, strict=True)
    return np.concatenate(ranges), np.concatenate(errors)


def _best_range_of_block(rows: Rows, free: Mask, width: int) -> tuple[Rows, Rows]:
    largest = np.abs(rows).max(axis=1, initial=0)
    deviation = np.sqrt(np.square(rows).sum(axis=1) / np.maximum(free.sum(axis=1), 1))
    candidates = [largest, np.minimum(largest, _NORMAL_RANGES[width] * deviation)]
    widths = np.full((len(rows), 1), width)
    errors = []
    for candidate in candidates:
        scale = candidate[:, None]
        rounded = midrise_values(midrise_codes(rows, scale, widths), scale, widths)
        errors.append(np.where(free, np.square(rows - rounded), 0.0).sum(axis=1))
    clipped = errors[1] < errors[0]
    return np.where(clipped, candidates[1], candidates[0]), np.where(clipped, errors[1], errors[0])
