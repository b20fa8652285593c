"""What a codec is: a rule that turns named tensors of known shapes into bits and back."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.communication.wire.packing import BitReader, BitWriter

Array = NDArray[np.float32]


@dataclass(frozen=True)
class TensorSpec:
    """Name and shape of a tensor; both ends know them, so they never travel."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)


class Codec(Protocol):
    """Encodes the tensors of one section; a frozen data class, as its fields are part of the schema."""

    def bits(self, tensors: Sequence[TensorSpec]) -> int:
        """Most bits that tensors of these shapes take; exact unless the codec says otherwise."""
        ...

    def encode(self, tensors: Mapping[str, Array], writer: BitWriter) -> None:
        """Append the tensors, all finite, in their order."""
        ...

    def decode(self, tensors: Sequence[TensorSpec], reader: BitReader) -> dict[str, Array]:
        """Read the tensors back, in their order."""
        ...
