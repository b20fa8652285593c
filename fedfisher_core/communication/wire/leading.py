"""A normal distribution in few numbers: its mean, its leading directions, and the variances that they leave."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from fedfisher_core.communication.wire.codec import Array, Codec, TensorSpec
from fedfisher_core.communication.wire.elementwise import MAX_QUANTISED_WIDTH, Uniform
from fedfisher_core.communication.wire.packing import BitReader, BitWriter
from fedfisher_core.communication.wire.structure import Structure
from fedfisher_core.communication.wire.tensors import PAPER_WIDTH
from fedfisher_core.engine.errors import InputError

C = TypeVar("C", bound=Codec)

WIDTH = 4
"""Fewest bits an entry of a direction: with fewer, directions are left out instead of sent more coarsely.

Of 3, 4, 5, 6 and 8, chosen for Gaussian distillation on validation images of one federation (CIFAR-10, LeNet, seed 100)
that no report shows.
"""
_AROUND_WIDTH = 8


@dataclass(frozen=True)
class Truncated:
    """The first directions, each quantised by its own largest entry; the variances of the others join the deviations.

    Three tensors, in this order: a mean of shape (n,) or several of shape (c, n), directions of shape (r, n), the
    longest first, and standard deviations of shape (n,) of what the directions leave. In the decoded tensors,
    directions that were not sent are 0, and D^T D + diag(deviations^2) has its former diagonal, up to the rounding of
    what was sent.

    Args:
        rows: how many directions are sent.
        width: bits of an entry of a direction, 2 to 24; those of means and deviations have 8 at least.
    """

    rows: int
    width: int

    def bits(self, tensors: Sequence[TensorSpec]) -> int:
        """The widths of all entries, and 32 a vector."""
        around, along = self._sent(tensors)
        return self.around.bits(around) + self._along.bits(along)

    def encode(self, tensors: Mapping[str, Array], writer: BitWriter) -> None:
        """Append the means, the deviations and the first directions."""
        means, directions, deviations = tensors.values()
        left = np.square(directions[self.rows :], dtype=np.float64).sum(axis=0)
        apart = np.sqrt(np.square(deviations, dtype=np.float64) + left).astype(np.float32)
        around = [*means.reshape(-1, len(deviations)), apart]
        self.around.encode({str(i): row for i, row in enumerate(around)}, writer)
        self._along.encode({str(i): row for i, row in enumerate(directions[: self.rows])}, writer)

    def decode(self, tensors: Sequence[TensorSpec], reader: BitReader) -> dict[str, Array]:
        """Read them back, quantised."""
        around, along = self._sent(tensors)
        *means, apart = self.around.decode(around, reader).values()
        directions = np.zeros(tensors[1].shape, dtype=np.float32)
        for row, vector in enumerate(self._along.decode(along, reader).values()):
            directions[row] = vector
        decoded = np.stack(means).reshape(tensors[0].shape), directions, apart
        return {tensor.name: array for tensor, array in zip(tensors, decoded, strict=True)}

    @property
    def around(self) -> Uniform:
        """The codec of means and deviations."""
        return Uniform(max(self.width, _AROUND_WIDTH) - 1)

    @property
    def _along(self) -> Uniform:
        return Uniform(self.width - 1)

    def _sent(self, tensors: Sequence[TensorSpec]) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Name the vectors as they travel: means and deviations, then directions."""
        means, _, deviations = tensors
        around = means.size // deviations.size + 1
        return _named(around, deviations.shape), _named(self.rows, deviations.shape)


def _named(vectors: int, shape: tuple[int, ...]) -> list[TensorSpec]:
    return [TensorSpec(str(row), shape) for row in range(vectors)]


class Leading(Structure):
    """Directions in the order of their lengths, of which the first say most."""

    def require(self, statistic: str, tensors: Sequence[TensorSpec]) -> None:
        """Make sure that tensors are a mean, directions and deviations."""
        shapes = [tensor.shape for tensor in tensors]
        size = shapes[0]
        if len(shapes) != 3 or len(size) != 1 or shapes != [size, (*shapes[1][:1], *size), size]:
            raise InputError(f"statistic {statistic!r} has tensors of shapes {shapes}; allowed: (n,), (r, n) and (n,)")

    def shorten(self, tensors: Sequence[TensorSpec], bits: int) -> Codec | None:
        """All directions where each entry can have 4 bits, else as many as can."""
        return first_rows(Truncated, tensors, bits, rows=tensors[1].shape[0], most=MAX_QUANTISED_WIDTH)

    def shorten_as_paper(self, tensors: Sequence[TensorSpec], bits: int, *, factor_bits: int) -> Codec | None:
        """The same, with the paper's 16 bits an entry at most."""
        return first_rows(Truncated, tensors, bits, rows=tensors[1].shape[0], most=PAPER_WIDTH)


def first_rows(
    make: Callable[[int, int], C], tensors: Sequence[TensorSpec], bits: int, *, rows: int, most: int
) -> C | None:
    """Choose how many directions are sent and how finely: all of them where their entries can have 4 bits.

    Args:
        make: the codec that sends a number of directions, by bits of an entry.
        bits: most bits of the codec.
        rows: directions that there are.
        most: most bits of an entry.

    Returns:
        The finest codec of all directions, else the one of most directions; None where there is no room for one.
    """
    for width in range(most, WIDTH - 1, -1):
        if (codec := make(rows, width)).bits(tensors) <= bits:
            return codec
    fitting = [codec for fewer in range(1, rows) if (codec := make(fewer, WIDTH)).bits(tensors) <= bits]
    return fitting[-1] if fitting else None


LEADING = Leading()
