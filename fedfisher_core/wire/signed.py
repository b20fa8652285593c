"""Tensors of any numbers."""

from collections.abc import Sequence

from fedfisher_core.wire.codec import Codec, TensorSpec
from fedfisher_core.wire.elementwise import MAX_QUANTISED_WIDTH, SCALE_BITS, Uniform
from fedfisher_core.wire.structure import Structure

PAPER_WIDTH = 16
"""Bits an entry of the paper's vectors."""


class Signed(Structure):
    """Any numbers, in steps as equal as each tensor's largest allows."""

    def shorten(self, tensors: Sequence[TensorSpec], bits: int) -> Codec | None:
        """As many bits an entry as find room beside the scales."""
        size = sum(tensor.size for tensor in tensors)
        return uniform((bits - SCALE_BITS * len(tensors)) // size, most=MAX_QUANTISED_WIDTH)

    def shorten_as_paper(self, tensors: Sequence[TensorSpec], bits: int, *, factor_bits: int) -> Codec | None:
        """As many bits an entry as find room, 16 at most."""
        return uniform(bits // sum(tensor.size for tensor in tensors), most=PAPER_WIDTH)


def uniform(width: int, *, most: int) -> Uniform | None:
    """Quantise uniformly.

    Args:
        width: bits an entry that there are.
        most: bits an entry to use of them.

    Returns:
        The codec; None for fewer than 2 bits, one of which is the sign.
    """
    return None if width < 2 else Uniform(min(width, most) - 1)


SIGNED = Signed()
