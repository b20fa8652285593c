"""The paper's way of counting bits, which differs from the real ones."""

from collections.abc import Sequence

from fedfisher_core.communication.wire.by_dimension import ByDimension, by_dimension
from fedfisher_core.communication.wire.codec import Codec, TensorSpec
from fedfisher_core.communication.wire.elementwise import SCALE_BITS, Root, Uniform
from fedfisher_core.communication.wire.low_rank import LowRank
from fedfisher_core.communication.wire.payload import Schema


def formula_bits(schema: Schema) -> int:
    """Count the bits of an upload as the FedFisher paper does (Jhunjhunwala et al. 2024, Section C.2).

    Entries are counted and scales are not: 16 d for the model, 16 d for a diagonal, and for K-FAC
    sum_l 32 / s_q (2 a_l r + 2 g_l r + 2 r), with a_l and g_l the sizes of layer l's factors, where each r is capped by
    its factor's size. (For a diagonal alone the paper adds its scales too, 64 bits a layer, and calls them negligible.)

    The paper's 32 / s_q bits do not hold what it quantises to in a matrix, 2^(32 / s_q) - 1 magnitudes and a sign.
    These take a bit more, 17, 9 and 5 for s_q = 2, 4 and 8 instead of 16, 8 and 4. The authors' code counts these, with
    the three scales of U, S and V: for s_q = 4, sum_l 9 (2 a_l r + 2 g_l r + 2 r) + 6 * 32.

    The real payload of the same schema is longer by exactly: the header of 256 bits, 32 for each tensor under
    `Uniform` or `Root` (its scale), a bit for each entry and 96 for each matrix under `LowRank`, and at most 7 of
    padding to a byte. `Spectral` counts as its budget, which the payload may fall short of.
    """
    return sum(paper_bits(section.codec, section.tensors) for section in schema.sections)


def paper_bits(codec: Codec, tensors: Sequence[TensorSpec]) -> int:
    """Count the bits of a statistic as the paper does, also where it divides a budget: see `formula_bits`.

    A codec that has neither scales nor signs to leave out counts in full.
    """
    bits = codec.bits(tensors)
    match codec:
        case Uniform() | Root():
            return bits - SCALE_BITS * len(tensors)
        case LowRank():
            entries = (bits - 3 * SCALE_BITS * len(tensors)) // (codec.levels_log2 + 1)
            return entries * codec.levels_log2
        case ByDimension(whole, diagonals):
            matrices, vectors = by_dimension(tensors)
            return paper_bits(whole, matrices) + paper_bits(diagonals, vectors)
        case _:
            return bits
