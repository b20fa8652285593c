"""What a statistic's tensors are, which decides how a budget can shorten them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from fedfisher_core.communication.wire.codec import Codec, TensorSpec
from fedfisher_core.communication.wire.elementwise import Float32


class Structure(ABC):
    """A rule from a share of a budget to a codec, for all tensors of a statistic.

    Client and server apply the same rule, so it may look only at names and shapes. It has a codec for each family of
    formats: this project's, and the FedFisher paper's.
    """

    def require(self, statistic: str, tensors: Sequence[TensorSpec]) -> None:
        """Refuse tensors that can't be of this structure, by an InputError that names the statistic; most take all."""
        return

    def freedom(self, tensors: Sequence[TensorSpec]) -> int:
        """Count the entries that do not follow from the others; statistics share a budget in proportion to them."""
        return sum(tensor.size for tensor in tensors)

    @abstractmethod
    def shorten(self, tensors: Sequence[TensorSpec], bits: int) -> Codec | None:
        """Choose this project's codec for tensors that take more than `bits`, the statistic's share, as they are.

        Returns:
            The codec, which takes at most `bits`; None where the share is too small for any.
        """

    @abstractmethod
    def shorten_as_paper(self, tensors: Sequence[TensorSpec], bits: int, *, factor_bits: int) -> Codec | None:
        """Choose the paper's codec, or what comes nearest to it.

        Args:
            bits: the statistic's share. The codec may exceed it by what the paper does not count: the scales of
                `Uniform`, and the signs and scales of `LowRank`.
            factor_bits: bits of an entry of singular vectors.

        Returns:
            The codec; None where the share is too small for any.
        """


@dataclass(frozen=True)
class Fixed(Structure):
    """Always encoded in one way: by a codec that no budget changes, and that the statistic may bring with it.

    Args:
        codec: of all tensors; a frozen data class.
    """

    codec: Codec

    def shorten(self, tensors: Sequence[TensorSpec], bits: int) -> Codec | None:
        """See `Structure.shorten`."""
        return self.codec if self.codec.bits(tensors) <= bits else None

    def shorten_as_paper(self, tensors: Sequence[TensorSpec], bits: int, *, factor_bits: int) -> Codec | None:
        """See `Structure.shorten_as_paper`."""
        return self.shorten(tensors, bits)


EXACT = Fixed(Float32())
"""Few numbers, which are never shortened: label counts."""
