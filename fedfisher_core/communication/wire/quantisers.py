"""Scalar quantisers: which integer stands for a number, and which number that integer means."""

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.communication.wire.codec import Array
from fedfisher_core.communication.wire.packing import Codes

_FLOAT32_BITS = 31  # without the sign


def uniform_codes(values: Array, levels_log2: int) -> tuple[np.float32, Codes]:
    """Quantise uniformly and symmetrically: round(L x / m) + L with L = 2**s - 1 and m = max|x|.

    Args:
        levels_log2: s, 1 to 23 (beyond, float32 is no finer than the steps).

    Returns:
        m, and the codes of s + 1 bits, flat.
    """
    levels = np.float32(2**levels_log2 - 1)
    flat = values.reshape(-1)
    if flat.size == 0:
        return np.float32(0), np.zeros(0, dtype=np.uint32)
    scale = np.float32(max(flat.max(), -flat.min()))
    if scale == 0:
        return scale, np.full(flat.size, int(levels), dtype=np.uint32)
    # Dividing first keeps a subnormal scale from overflowing its inverse.
    scaled = flat / scale
    scaled *= levels
    np.rint(scaled, out=scaled)
    return scale, (scaled.astype(np.int32) + np.int32(levels)).view(np.uint32)


def uniform_values(scale: np.float32, codes: Codes, levels_log2: int) -> Array:
    """Undo `uniform_codes`: m (code - L) / L, flat; off by at most m / (2 L), and m 2**-23 by single precision."""
    levels = np.int32(2**levels_log2 - 1)
    values = (codes.view(np.int32) - levels).astype(np.float32)
    values /= np.float32(levels)
    values *= scale
    return values


def root_codes(values: Array, width: int) -> tuple[np.float32, Codes]:
    """Quantise the fourth roots of non-negative values: round((2**width - 1) (x / m)**(1/4)), m = max x.

    Args:
        width: bits a code, 1 to 24.

    Returns:
        m, and the codes, flat; 0 stands for exactly 0 and for what is nearer to it.
    """
    flat = values.reshape(-1)
    scale = np.float32(flat.max(initial=0))
    if scale == 0:
        return scale, np.zeros(flat.size, dtype=np.uint32)
    roots = flat / scale
    np.sqrt(roots, out=roots)
    np.sqrt(roots, out=roots)
    roots *= np.float32(2**width - 1)
    np.rint(roots, out=roots)
    return scale, roots.astype(np.uint32)


def root_values(scale: np.float32, codes: Codes, width: int) -> Array:
    """Undo `root_codes`, flat."""
    roots = codes.astype(np.float32)
    roots /= np.float32(2**width - 1)
    np.square(roots, out=roots)
    np.square(roots, out=roots)
    roots *= scale
    return roots


def midrise_codes(values: NDArray[np.float64], scale: NDArray[np.float64], width: NDArray[np.int64]) -> Codes:
    """Cut [-scale, scale] into 2**width equal intervals; values outside fall into the outermost ones.

    Args:
        scale: half of the covered range, broadcast to the values; where it is 0, so must be the values.
        width: bits a code, broadcast to the values.

    Returns:
        The number of each value's interval, in the values' shape.
    """
    cells = np.exp2(width)
    positions = np.divide(values, scale, out=np.zeros_like(values), where=scale > 0)
    return np.clip(np.floor((positions + 1) * (cells / 2)), 0, cells - 1).astype(np.uint32)


def midrise_values(codes: Codes, scale: NDArray[np.float64], width: NDArray[np.int64]) -> NDArray[np.float64]:
    """Centres of the intervals that `midrise_codes` numbers."""
    return scale * ((2.0 * codes + 1) / np.exp2(width) - 1)


def short_float_codes(values: NDArray[np.float64], width: int, *, upwards: bool) -> Codes:
    """Keep a non-negative float32's exponent and the first `width` - 8 bits of its fraction.

    Args:
        width: bits a code, 9 to 31.
        upwards: round up instead of to the nearest.

    Returns:
        The codes, in the values' shape.
    """
    dropped = _FLOAT32_BITS - width
    step = (1 << dropped) - 1 if upwards else (1 << dropped) >> 1
    exact = values.astype(np.float32)
    if upwards:
        exact = np.where(exact < values, np.nextafter(exact, np.float32(np.inf)), exact)
    return (exact.view(np.uint32) + np.uint32(step)) >> np.uint32(dropped)


def short_float_values(codes: Codes, width: int) -> NDArray[np.float64]:
    """Undo `short_float_codes`."""
    return (codes << np.uint32(_FLOAT32_BITS - width)).view(np.float32).astype(np.float64)
