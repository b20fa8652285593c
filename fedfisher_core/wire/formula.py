"""The paper's way of counting bits, beside the real ones."""

from collections.abc import Sequence

from fedfisher_core.wire.codec import Codec, TensorSpec
from fedfisher_core.wire.elementwise import SCALE_BITS, Root, Uniform
from fedfisher_core.wire.low_rank import LowRank
from fedfisher_core.wire.payload import Schema


def formula_bits(schema: Schema) -> int:
    """Count an upload as the FedFisher paper does (Jhunjhunwala et al. 2024, Section C.2, and its code).

    A quantised vector counts its entries alone: 16 d for the model, 16 d for a diagonal. A low-rank matrix
    counts its entries and the three scales of U, S and V: with a_l and g_l the sizes of layer l's factors,
    K-FAC is sum_l 9 (2 a_l r + 2 g_l r + r + r) + 6 * 32, where each r is capped by its factor's size.

    The real payload of the same schema is longer by exactly: the header of 256 bits, 32 for each tensor under
    `Uniform` or `Root` (its scale), and at most 7 of padding to a byte. `Spectral` counts as its budget,
    which the payload may fall short of.

    Args:
        schema: any schema, not only one of the paper's family.

    Returns:
        Bits.
    """
    scales = sum(
        SCALE_BITS * len(section.tensors) for section in schema.sections if isinstance(section.codec, Uniform | Root)
    )
    return sum(section.bits for section in schema.sections) - scales


def paper_bits(codec: Codec, tensors: Sequence[TensorSpec]) -> int:
    """Count a statistic as the paper does when it divides a budget.

    Unlike `formula_bits`, it counts neither the signs nor the scales of a low-rank matrix.

    Args:
        codec: any codec; one that is not the paper's counts in full.
        tensors: names and shapes.

    Returns:
        Bits.
    """
    bits = codec.bits(tensors)
    if isinstance(codec, Uniform):
        return bits - SCALE_BITS * len(tensors)
    if isinstance(codec, LowRank):
        entries = (bits - 3 * SCALE_BITS * len(tensors)) // (codec.levels_log2 + 1)
        return entries * codec.levels_log2
    return bits
