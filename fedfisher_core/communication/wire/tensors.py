"""What is known of a tensor's entries, which decides how it is encoded: any, none below 0, symmetric."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedfisher_core.communication.wire.codec import Array, BitReader, BitWriter, Codec, TensorSpec
from fedfisher_core.communication.wire.elementwise import MAX_QUANTISED_WIDTH, SCALE_BITS, Root, Uniform
from fedfisher_core.communication.wire.low_rank import LowRank
from fedfisher_core.communication.wire.spectral import Spectral, minimum_bits
from fedfisher_core.communication.wire.structure import Structure
from fedfisher_core.engine.errors import InputError

PAPER_WIDTH = 16
"""Bits an entry of the paper's vectors."""


@dataclass(frozen=True)
class ByDimension:
    """All matrices by one codec, and then all vectors by another."""

    matrices: Codec
    vectors: Codec

    def bits(self, tensors: Sequence[TensorSpec]) -> int:
        """What both take."""
        matrices, vectors = by_dimension(tensors)
        return self.matrices.bits(matrices) + self.vectors.bits(vectors)

    def encode(self, tensors: Mapping[str, Array], writer: BitWriter) -> None:
        """Append the matrices, and then the vectors."""
        self.matrices.encode({name: one for name, one in tensors.items() if one.ndim > 1}, writer)
        self.vectors.encode({name: one for name, one in tensors.items() if one.ndim == 1}, writer)

    def decode(self, tensors: Sequence[TensorSpec], reader: BitReader) -> dict[str, Array]:
        """Read the tensors back, in their order."""
        matrices, vectors = by_dimension(tensors)
        found = self.matrices.decode(matrices, reader) | self.vectors.decode(vectors, reader)
        return {tensor.name: found[tensor.name] for tensor in tensors}


def by_dimension(tensors: Sequence[TensorSpec]) -> tuple[list[TensorSpec], list[TensorSpec]]:
    """Part tensors into matrices and vectors, both in their order."""
    vectors = [tensor for tensor in tensors if len(tensor.shape) == 1]
    return [tensor for tensor in tensors if len(tensor.shape) > 1], vectors


class Signed(Structure):
    """Any numbers, in steps as equal as each tensor's largest allows."""

    def shorten(self, tensors: Sequence[TensorSpec], bits: int) -> Uniform | None:
        """As many bits an entry as the scales leave."""
        size = sum(tensor.size for tensor in tensors)
        return uniform((bits - SCALE_BITS * len(tensors)) // size, most=MAX_QUANTISED_WIDTH)

    def shorten_as_paper(self, tensors: Sequence[TensorSpec], bits: int, *, factor_bits: int) -> Uniform | None:
        """As many bits an entry as fit, 16 at most."""
        return uniform(bits // sum(tensor.size for tensor in tensors), most=PAPER_WIDTH)


def uniform(width: int, *, most: int) -> Uniform | None:
    """Quantise uniformly with `width` bits an entry, `most` of them at most.

    Returns:
        The codec; None for fewer than 2 bits, one of which is the sign.
    """
    return None if width < 2 else Uniform(min(width, most) - 1)


SIGNED = Signed()


class Nonnegative(Structure):
    """Numbers that span many powers of ten, and of which ratios count."""

    def shorten(self, tensors: Sequence[TensorSpec], bits: int) -> Codec | None:
        """The same width for all tensors, and one bit more for the largest that still fit."""
        size = sum(tensor.size for tensor in tensors)
        share = bits - SCALE_BITS * len(tensors)
        base = min(share // size, MAX_QUANTISED_WIDTH)
        if base < 1:
            return None
        left = share - base * size
        widths = [base] * len(tensors)
        for index in sorted(range(len(widths)), key=lambda index: -tensors[index].size):
            if tensors[index].size <= left and base < MAX_QUANTISED_WIDTH:
                widths[index] += 1
                left -= tensors[index].size
        return Root(tuple(widths))

    def shorten_as_paper(self, tensors: Sequence[TensorSpec], bits: int, *, factor_bits: int) -> Codec | None:
        """As many bits an entry as fit, 16 at most, one of them a sign that is never set."""
        return uniform(bits // sum(tensor.size for tensor in tensors), most=PAPER_WIDTH)


NONNEGATIVE = Nonnegative()


class Symmetric(Structure):
    """Matrices whose entries on and above the diagonal are enough, and of which few eigenvectors say most.

    A vector is the diagonal of a matrix without other entries, none of them below 0.
    """

    def require(self, statistic: str, tensors: Sequence[TensorSpec]) -> None:
        """Make sure that all tensors are square matrices or vectors."""
        for tensor in tensors:
            if len(set(tensor.shape)) != 1 or len(tensor.shape) > 2:
                raise InputError(
                    f"tensor {tensor.name!r} of statistic {statistic!r} has shape {tensor.shape}; "
                    "allowed: a square matrix, or the vector of a diagonal"
                )

    def freedom(self, tensors: Sequence[TensorSpec]) -> int:
        """Count the entries on and above the diagonals."""
        matrices, vectors = by_dimension(tensors)
        on_diagonals = sum(vector.size for vector in vectors)
        return on_diagonals + sum(one.shape[0] * (one.shape[0] + 1) // 2 for one in matrices)

    def shorten(self, tensors: Sequence[TensorSpec], bits: int) -> Codec | None:
        """All bits, divided over eigenvectors as the data need; vectors get theirs by their number of entries."""
        matrices, vectors = by_dimension(tensors)
        if vectors:
            share = bits * self.freedom(vectors) // self.freedom(tensors)
            diagonals = NONNEGATIVE.shorten(vectors, share)
            if diagonals is None or not matrices:
                return diagonals
            whole = self.shorten(matrices, bits - diagonals.bits(vectors))
            return None if whole is None else ByDimension(whole, diagonals)
        least = sum(minimum_bits(tensor.shape[0]) for tensor in tensors)
        return None if bits < least else Spectral(bits)

    def shorten_as_paper(self, tensors: Sequence[TensorSpec], bits: int, *, factor_bits: int) -> Codec | None:
        """The rank floor(bits / (factor_bits - 1) / sum(2 n + 1)), n each matrix's size; 16 bits an entry of vectors.

        The paper has no vectors here.
        """
        matrices, vectors = by_dimension(tensors)
        if vectors:
            diagonals = NONNEGATIVE.shorten_as_paper(vectors, bits, factor_bits=factor_bits)
            if diagonals is None or not matrices:
                return diagonals
            whole = self.shorten_as_paper(matrices, bits - diagonals.bits(vectors), factor_bits=factor_bits)
            return None if whole is None else ByDimension(whole, diagonals)
        rank = bits // ((factor_bits - 1) * sum(2 * tensor.shape[0] + 1 for tensor in tensors))
        return None if rank < 1 else LowRank(rank, factor_bits - 1)


SYMMETRIC = Symmetric()


class Foremost(Signed):
    """Any numbers that come first when a budget is divided, as weights do.

    Shares in proportion to the number of entries would leave the sums of C classes 2 C / (n + 1) of what a second
    moment of n features gets, and thus less than a bit an entry where features are many.
    """


FOREMOST = Foremost()
