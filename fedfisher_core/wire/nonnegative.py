"""Tensors without an entry below 0: a diagonal Fisher, summed squared gradients."""

from collections.abc import Sequence

from fedfisher_core.wire.codec import Codec, TensorSpec
from fedfisher_core.wire.elementwise import MAX_QUANTISED_WIDTH, SCALE_BITS, Root
from fedfisher_core.wire.signed import PAPER_WIDTH, uniform
from fedfisher_core.wire.structure import Structure


class Nonnegative(Structure):
    """Numbers that span many powers of ten, and of which ratios count."""

    def shorten(self, tensors: Sequence[TensorSpec], bits: int) -> Codec | None:
        """The same width for all tensors, and one bit more for the largest that still find room."""
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
        """As many bits an entry as find room, 16 at most, one of them a sign that is never set."""
        return uniform(bits // sum(tensor.size for tensor in tensors), most=PAPER_WIDTH)


NONNEGATIVE = Nonnegative()
