"""Codecs that treat every entry separately."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedfisher_core.communication.wire.codec import Array, TensorSpec
from fedfisher_core.communication.wire.packing import BitReader, BitWriter
from fedfisher_core.communication.wire.quantisers import root_codes, root_values, uniform_codes, uniform_values
from fedfisher_core.engine.errors import CorruptArtifactError, InputError

SCALE_BITS = 32
MAX_QUANTISED_WIDTH = 24


def write_scale(writer: BitWriter, scale: np.float32) -> None:
    """Append one float32."""
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
