"""Symmetric positive semi-definite matrices: Kronecker factors, Gram matrices, projections."""

from collections.abc import Sequence

from fedfisher_core.errors import InputError
from fedfisher_core.wire.codec import Codec, TensorSpec
from fedfisher_core.wire.low_rank import LowRank
from fedfisher_core.wire.spectral import Spectral, minimum_bits
from fedfisher_core.wire.structure import Structure


class Symmetric(Structure):
    """Matrices of which half of the entries say all, and few eigenvectors most."""

    def require(self, statistic: str, tensors: Sequence[TensorSpec]) -> None:
        """Make sure that all tensors are square matrices."""
        for tensor in tensors:
            if len(tensor.shape) != 2 or tensor.shape[0] != tensor.shape[1]:
                raise InputError(
                    f"tensor {tensor.name!r} of statistic {statistic!r} has shape {tensor.shape}; "
                    "allowed: a square matrix"
                )

    def freedom(self, tensors: Sequence[TensorSpec]) -> int:
        """Count the entries on and above the diagonals."""
        return sum(tensor.shape[0] * (tensor.shape[0] + 1) // 2 for tensor in tensors)

    def shorten(self, tensors: Sequence[TensorSpec], bits: int) -> Codec | None:
        """All bits, divided over eigenvectors as the data asks."""
        least = sum(minimum_bits(tensor.shape[0]) for tensor in tensors)
        return None if bits < least else Spectral(bits)

    def shorten_as_paper(self, tensors: Sequence[TensorSpec], bits: int, *, factor_bits: int) -> Codec | None:
        """The rank floor(bits / (factor_bits - 1) / sum(2 n + 1)), n each matrix's size."""
        rank = bits // ((factor_bits - 1) * sum(2 * tensor.shape[0] + 1 for tensor in tensors))
        return None if rank < 1 else LowRank(rank, factor_bits - 1)


SYMMETRIC = Symmetric()
