"""Leading directions, the longest first: alone, or with means and the variances that they leave."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from fedfisher_core.communication.wire.codec import Array, BitReader, BitWriter, Codec, TensorSpec
from fedfisher_core.communication.wire.elementwise import MAX_QUANTISED_WIDTH, Float32, Uniform
from fedfisher_core.communication.wire.structure import Structure
from fedfisher_core.communication.wire.tensors import PAPER_WIDTH
from fedfisher_core.engine.errors import CorruptArtifactError, InputError

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


@dataclass(frozen=True)
class First:
    """The first directions of one tensor of shape (r, n), the longest first, each quantised by its own largest entry.

    In the decoded tensor, directions that were not sent are 0.

    Args:
        rows: how many directions are sent.
        width: bits of an entry, 2 to 24.
    """

    rows: int
    width: int

    def bits(self, tensors: Sequence[TensorSpec]) -> int:
        """The width of all entries that are sent, and 32 a direction."""
        return self._codec.bits(self._sent(tensors))

    def encode(self, tensors: Mapping[str, Array], writer: BitWriter) -> None:
        """Append the first directions."""
        (directions,) = tensors.values()
        self._codec.encode({str(i): row for i, row in enumerate(directions[: self.rows])}, writer)

    def decode(self, tensors: Sequence[TensorSpec], reader: BitReader) -> dict[str, Array]:
        """Read them back, quantised."""
        (tensor,) = tensors
        directions = np.zeros(tensor.shape, dtype=np.float32)
        directions[: self.rows] = np.stack(list(self._codec.decode(self._sent(tensors), reader).values()))
        return {tensor.name: directions}

    @property
    def _codec(self) -> Uniform:
        return Uniform(self.width - 1)

    def _sent(self, tensors: Sequence[TensorSpec]) -> list[TensorSpec]:
        (tensor,) = tensors
        return _named(self.rows, tensor.shape[1:])


class Directions(Structure):
    """Directions alone, in the order of their lengths, of which the first say most."""

    def require(self, statistic: str, tensors: Sequence[TensorSpec]) -> None:
        """Make sure that there is one matrix."""
        shapes = [tensor.shape for tensor in tensors]
        if len(shapes) != 1 or len(shapes[0]) != 2:
            raise InputError(f"statistic {statistic!r} has tensors of shapes {shapes}; allowed: (r, n)")

    def shorten(self, tensors: Sequence[TensorSpec], bits: int) -> Codec | None:
        """All directions where each entry can have 4 bits, else as many as can."""
        return first_rows(First, tensors, bits, rows=tensors[0].shape[0], most=MAX_QUANTISED_WIDTH)

    def shorten_as_paper(self, tensors: Sequence[TensorSpec], bits: int, *, factor_bits: int) -> Codec | None:
        """The same, with the paper's 16 bits an entry at most."""
        return first_rows(First, tensors, bits, rows=tensors[0].shape[0], most=PAPER_WIDTH)


FIRST = Directions()


@dataclass(frozen=True)
class Owned:
    """The first directions of all classes with their classes, and the classes' means and shares.

    Six tensors, in this order: shares of shape (c,), means of shape (c, m), directions of shape (r, m), the longest
    first, owners of shape (r,), each the number of a class, standard deviations of shape (m,), and residuals of shape
    (n,). Shares and owners arrive as they are, residuals as finely as means, and the rest as `Truncated` has it.

    Args:
        moments: of means, directions and deviations.
    """

    moments: Truncated

    @classmethod
    def of(cls, rows: int, width: int) -> "Owned":
        """Send `rows` directions with entries of `width` bits; see `Truncated`."""
        return cls(Truncated(rows, width))

    def bits(self, tensors: Sequence[TensorSpec]) -> int:
        """Those of the moments and the residuals, 32 a share, and as many for an owner as number the classes."""
        shares, moments, _, residuals = _split(tensors)
        owners = self.moments.rows * _owner_width(shares)
        return Float32().bits([shares]) + owners + self.moments.bits(moments) + self.moments.around.bits([residuals])

    def encode(self, tensors: Mapping[str, Array], writer: BitWriter) -> None:
        """Append the tensors; an InputError where an owner is not the number of a class."""
        shares, means, directions, owners, deviations, residuals = tensors.values()
        codes = owners[: self.moments.rows]
        if not np.isin(codes, np.arange(len(shares))).all():
            raise InputError(f"owners are {codes.tolist()}; allowed: whole numbers from 0 to {len(shares) - 1}")
        Float32().encode({"shares": shares}, writer)
        writer.write(codes.astype(np.uint32), _owner_width(TensorSpec("shares", shares.shape)))
        self.moments.encode({"means": means, "directions": directions, "deviations": deviations}, writer)
        self.moments.around.encode({"residuals": residuals}, writer)

    def decode(self, tensors: Sequence[TensorSpec], reader: BitReader) -> dict[str, Array]:
        """Read them back, 0 where none was sent; a CorruptArtifactError where an owner is not the number of a class."""
        shares, moments, kept, residuals = _split(tensors)
        known = Float32().decode([shares], reader)[shares.name]
        codes = reader.read(self.moments.rows, _owner_width(shares))
        if codes.max(initial=0) >= shares.size:
            raise CorruptArtifactError(f"payload has a direction of class {codes.max()}; expected below {shares.size}")
        owners = np.zeros(kept.shape, dtype=np.float32)
        owners[: len(codes)] = codes
        found = self.moments.decode(moments, reader) | self.moments.around.decode([residuals], reader)
        decoded = {shares.name: known, kept.name: owners, **found}
        return {tensor.name: decoded[tensor.name] for tensor in tensors}


def _split(tensors: Sequence[TensorSpec]) -> tuple[TensorSpec, list[TensorSpec], TensorSpec, TensorSpec]:
    shares, means, directions, owners, deviations, residuals = tensors
    return shares, [means, directions, deviations], owners, residuals


def _owner_width(shares: TensorSpec) -> int:
    """Bits that number the classes, at least one."""
    return max(1, (shares.size - 1).bit_length())


class Mixture(Structure):
    """Means of classes, and directions of all of them in the order of their lengths, of which the first say most."""

    def require(self, statistic: str, tensors: Sequence[TensorSpec]) -> None:
        """Make sure that tensors are shares, means, directions, owners, deviations and residuals."""
        shapes = [tensor.shape for tensor in tensors]
        means, directions, residuals = (shapes[1], shapes[2], shapes[5]) if len(shapes) == 6 else ((), (), ())
        wanted = [means[:1], means, directions[:1] + means[1:], directions[:1], means[1:], residuals]
        if len(means) != 2 or len(residuals) != 1 or shapes != wanted:
            raise InputError(
                f"statistic {statistic!r} has tensors of shapes {shapes}; allowed: (c,), (c, m), (r, m), (r,), (m,), "
                "(n,)"
            )

    def shorten(self, tensors: Sequence[TensorSpec], bits: int) -> Codec | None:
        """All directions where each entry can have 4 bits, else as many as can."""
        return first_rows(Owned.of, tensors, bits, rows=tensors[2].shape[0], most=MAX_QUANTISED_WIDTH)

    def shorten_as_paper(self, tensors: Sequence[TensorSpec], bits: int, *, factor_bits: int) -> Codec | None:
        """The same, with the paper's 16 bits an entry at most."""
        return first_rows(Owned.of, tensors, bits, rows=tensors[2].shape[0], most=PAPER_WIDTH)


MIXTURE = Mixture()
