"""Scalar quantisers, and codecs that treat every entry separately."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.communication.wire.codec import Array, BitReader, BitWriter, Codes, TensorSpec
from fedfisher_core.engine.errors import CorruptArtifactError, InputError

_FLOAT32_BITS = 31  # without the sign

SCALE_BITS = 32
MAX_QUANTISED_WIDTH = 24


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
    """Undo `uniform_codes`: m (code - L) / L, flat; off by at most m / (2 L), and m 2**-23 by single precision.

    Raises:
        CorruptArtifactError: a code is above 2 L, which no encoder writes.
    """
    levels = np.int32(2**levels_log2 - 1)
    if codes.max(initial=0) > 2 * levels:
        raise CorruptArtifactError(f"payload has the code {codes.max()}; expected 0 to {2 * levels}")
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


def write_scale(writer: BitWriter, scale: np.float32) -> None:
    """Append one float32; an InputError where it is not finite, as `read_scale` reads no other."""
    if not np.isfinite(scale):
        raise InputError(f"a tensor's largest number is {scale} in single precision; allowed: finite numbers")
    writer.write(np.array([scale], dtype=np.float32).view(np.uint32), SCALE_BITS)


def read_scale(reader: BitReader) -> np.float32:
    """Read one float32, a tensor's largest magnitude; a CorruptArtifactError where it is negative or not finite."""
    scale = np.float32(reader.read(1, SCALE_BITS).view(np.float32)[0])
    if not 0 <= scale < np.inf:
        raise CorruptArtifactError(f"payload has the scale {scale}; expected a finite number, not negative")
    return scale


@dataclass(frozen=True)
class Float32:
    """Every entry as it is: 32 bits, no loss."""

    def bits(self, tensors: Sequence[TensorSpec]) -> int:
        """32 bits an entry."""
        return 32 * sum(tensor.size for tensor in tensors)

    def encode(self, tensors: Mapping[str, Array], writer: BitWriter) -> None:
        """Append the entries' float32 patterns."""
        for array in tensors.values():
            writer.write(array.reshape(-1).view(np.uint32), 32)

    def decode(self, tensors: Sequence[TensorSpec], reader: BitReader) -> dict[str, Array]:
        """Read the entries back, equal to the last bit."""
        return {tensor.name: reader.read(tensor.size, 32).view(np.float32).reshape(tensor.shape) for tensor in tensors}


@dataclass(frozen=True)
class Uniform:
    """Uniform symmetric quantisation of each tensor (Jhunjhunwala et al. 2024, Equation 116).

    s + 1 bits an entry and 32 for the tensor's largest magnitude m; the error is at most m / (2 (2**s - 1)), and
    m 2**-23 by single precision, which counts from s = 20 on.

    Args:
        levels_log2: s, 1 to 23; the paper's 16-bit vectors have s = 15.
    """

    levels_log2: int

    def __post_init__(self) -> None:
        if not 1 <= self.levels_log2 < MAX_QUANTISED_WIDTH:
            raise InputError(f"levels_log2 is {self.levels_log2}; allowed: 1 to {MAX_QUANTISED_WIDTH - 1}")

    def bits(self, tensors: Sequence[TensorSpec]) -> int:
        """s + 1 bits an entry, 32 a tensor."""
        return sum((self.levels_log2 + 1) * tensor.size + SCALE_BITS for tensor in tensors)

    def encode(self, tensors: Mapping[str, Array], writer: BitWriter) -> None:
        """Append each tensor's scale and codes."""
        for array in tensors.values():
            scale, codes = uniform_codes(array, self.levels_log2)
            write_scale(writer, scale)
            writer.write(codes, self.levels_log2 + 1)

    def decode(self, tensors: Sequence[TensorSpec], reader: BitReader) -> dict[str, Array]:
        """Read the tensors back, quantised."""
        decoded = {}
        for tensor in tensors:
            scale = read_scale(reader)
            codes = reader.read(tensor.size, self.levels_log2 + 1)
            decoded[tensor.name] = uniform_values(scale, codes, self.levels_log2).reshape(tensor.shape)
        return decoded


@dataclass(frozen=True)
class Root:
    """Uniform quantisation of the fourth roots of non-negative entries.

    A diagonal Fisher spans many powers of ten, and the merged weights depend on ratios of its entries. Equal
    steps of 16 bits round all below 1e-5 of the largest to 0; equal steps of the fourth root reach down to
    1e-20. Each tensor has its own width, so that little of a budget is left over.

    Args:
        widths: bits an entry, one number a tensor, each 1 to 24; 32 more bits a tensor hold its maximum.
    """

    widths: tuple[int, ...]

    def __post_init__(self) -> None:
        if not all(1 <= width <= MAX_QUANTISED_WIDTH for width in self.widths):
            raise InputError(f"widths are {self.widths}; allowed: 1 to {MAX_QUANTISED_WIDTH} each")

    def bits(self, tensors: Sequence[TensorSpec]) -> int:
        """Each tensor's width an entry, and 32 a tensor."""
        pairs = zip(tensors, self.widths, strict=True)
        return sum(width * tensor.size + SCALE_BITS for tensor, width in pairs)

    def encode(self, tensors: Mapping[str, Array], writer: BitWriter) -> None:
        """Append each tensor's scale and codes; an InputError where an entry is negative."""
        for (name, array), width in zip(tensors.items(), self.widths, strict=True):
            if array.min(initial=0) < 0:
                raise InputError(f"tensor {name!r} has the entry {array.min()}; allowed: none below 0")
            scale, codes = root_codes(array, width)
            write_scale(writer, scale)
            writer.write(codes, width)

    def decode(self, tensors: Sequence[TensorSpec], reader: BitReader) -> dict[str, Array]:
        """Read the tensors back, quantised."""
        decoded = {}
        for tensor, width in zip(tensors, self.widths, strict=True):
            scale = read_scale(reader)
            codes = reader.read(tensor.size, width)
            decoded[tensor.name] = root_values(scale, codes, width).reshape(tensor.shape)
        return decoded
