"""Which codec each statistic gets, so that an upload fits a budget, and how the paper counts bits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fedfisher_core.communication.wire.codec import Codec, TensorSpec
from fedfisher_core.communication.wire.elementwise import MAX_QUANTISED_WIDTH, SCALE_BITS, Float32, Root, Uniform
from fedfisher_core.communication.wire.low_rank import LowRank
from fedfisher_core.communication.wire.payload import HEADER_BITS, Schema, Section
from fedfisher_core.communication.wire.structure import Fixed, Structure
from fedfisher_core.communication.wire.tensors import PAPER_WIDTH, ByDimension, Foremost, by_dimension, uniform
from fedfisher_core.engine.errors import InputError

PAPER_FACTOR_BITS = 9
# Numbers that are sent as they are may take 1 / 16 of a budget before the paper's format has to count them.
_FEW = 16


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

    A codec that is neither in the paper nor made of one that is counts in full, with its scales and signs.
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


class Family(StrEnum):
    """Whose formats are used: none, the FedFisher paper's, or this project's."""

    FLOAT32 = "float32"
    PAPER = "paper"
    FEDFISHER = "fedfisher"


@dataclass(frozen=True)
class StatisticSpec:
    """One statistic of an upload.

    Args:
        is_model: whether these are the network's weights, which come first when a budget is divided.
    """

    name: str
    structure: Structure
    tensors: tuple[TensorSpec, ...]
    is_model: bool = False

    @property
    def size(self) -> int:
        """Number of entries."""
        return sum(tensor.size for tensor in self.tensors)

    @property
    def comes_first(self) -> bool:
        """Whether it gets its part of a budget before the others divide the rest."""
        return self.is_model or isinstance(self.structure, Foremost)

    @property
    def freedom(self) -> int:
        """Number of entries that do not follow from the others."""
        return self.structure.freedom(self.tensors)


def fedavg_bits(parameters: int) -> int:
    """What federated averaging sends: the header and 32 bits a weight, the usual budget of any upload."""
    return HEADER_BITS + 32 * parameters


def fit(
    statistics: Sequence[StatisticSpec],
    *,
    family: Family,
    budget_bits: int | None,
    factor_bits: int = PAPER_FACTOR_BITS,
) -> Schema:
    """Choose codecs for an upload.

    `FLOAT32`, and any family without a budget, sends everything as it is. So do the others when that fits. A statistic
    of structure `Fixed` is always sent by its own codec, and the others divide what it leaves. What is `Foremost` has
    the weights' part in both other families.

    `PAPER` gives the weights half of the budget, 16 bits an entry if that is FedAvg's, and the rest to one further
    statistic, such as at most 16 bits an entry of a diagonal, or all matrices at the rank
    floor(rest / (b - 1) / sum(2 n + 1)), n each matrix's size and b the bits of an entry, which for b = 9 is
    floor(2 d / sum(2 n + 1)). As in the paper, neither scales nor the signs in that rank are counted, so that the
    payload exceeds the budget: by 3.4% for K-FAC on LeNet. Nor are a few numbers that are sent as they are.

    `FEDFISHER` never exceeds the budget. Weights get half of it, at most 16 bits an entry. The rest is divided by the
    statistics' degrees of freedom.

    Args:
        budget_bits: of the whole payload, header included; `fedavg_bits` gives the usual one. None: no limit.
        factor_bits: bits of an entry of the singular vectors (`PAPER`), at least 2.

    Returns:
        The schema, which depends on the shapes alone, so that both ends can derive it.

    Raises:
        InputError: nothing of the family fits the budget, or the family has no format for the statistics.
    """
    for statistic in statistics:
        if statistic.size == 0:
            raise InputError(f"statistic {statistic.name!r} has no entries; allowed: at least one")
        statistic.structure.require(statistic.name, statistic.tensors)
    fixed = {s.name: s.structure.codec for s in statistics if isinstance(s.structure, Fixed)}
    plain = _schema(statistics, {statistic.name: Float32() for statistic in statistics} | fixed)
    if budget_bits is None or plain.bits <= budget_bits:
        return plain
    if family is Family.FLOAT32:
        raise InputError(
            f"family 'float32' takes {plain.bits} bits, the budget is {budget_bits}; "
            "allowed: a larger budget, none, or the family 'paper' or 'fedfisher'"
        )
    try:
        if family is Family.PAPER:
            return _schema(statistics, _paper(statistics, fixed, budget_bits, factor_bits))
        schema = _schema(statistics, _ours(statistics, fixed, budget_bits))
        if schema.bits > budget_bits:
            raise InputError(f"the budget is {budget_bits}; allowed: at least {schema.bits}")
    except InputError as error:
        raise _explain(statistics, fixed, error) from error
    return schema


def _ours(statistics: Sequence[StatisticSpec], fixed: Mapping[str, Codec], budget: int) -> dict[str, Codec]:
    left = budget - HEADER_BITS
    # The payload is padded to a byte, so only the whole bytes of a budget count.
    left -= left % 8
    left -= sum(codec.bits(s.tensors) for s, codec in _with_codec(statistics, fixed))
    codecs = dict(fixed)
    extras = _extras(statistics, fixed)
    for model in _models(statistics):
        scales = SCALE_BITS * len(model.tensors)
        width = _half(left, model.size) if extras else (left - scales) // model.size
        codecs[model.name] = _quantised(width, model.size, budget)
        left -= codecs[model.name].bits(model.tensors)
    freedom = sum(s.freedom for s in extras)
    for statistic in extras:
        share = left * statistic.freedom // max(freedom, 1)
        if Float32().bits(statistic.tensors) <= share:
            codecs[statistic.name] = Float32()
        else:
            codecs[statistic.name] = _enough(statistic, statistic.structure.shorten(statistic.tensors, share), budget)
    return codecs


def _paper(
    statistics: Sequence[StatisticSpec], fixed: Mapping[str, Codec], budget: int, factor_bits: int
) -> dict[str, Codec]:
    extras = _extras(statistics, fixed)
    if len(extras) > 1:
        names = ", ".join(repr(s.name) for s in extras)
        raise InputError(f"family 'paper' has statistics {names}; allowed: one besides the weights")
    bits = [(codec, codec.bits(s.tensors)) for s, codec in _with_codec(statistics, fixed)]
    exact = sum(taken for codec, taken in bits if isinstance(codec, Float32))
    if exact * _FEW > budget:
        raise InputError(
            f"the budget is {budget} bits, of which {exact} are for numbers that family 'paper' sends as they are; "
            f"allowed: at most {budget // _FEW}"
        )
    left = budget - HEADER_BITS - sum(taken for codec, taken in bits if not isinstance(codec, Float32))
    codecs = dict(fixed)
    for model in _models(statistics):
        width = _half(left, model.size) if extras else min(left // model.size, MAX_QUANTISED_WIDTH)
        codecs[model.name] = _quantised(width, model.size, budget)
        left -= width * model.size
    for statistic in extras:
        shortened = statistic.structure.shorten_as_paper(statistic.tensors, left, factor_bits=factor_bits)
        codec = _enough(statistic, shortened, budget)
        if paper_bits(codec, statistic.tensors) > left:
            raise InputError(
                f"statistic {statistic.name!r} takes {paper_bits(codec, statistic.tensors)} bits by {codec}; "
                f"allowed: its share of {left}"
            )
        codecs[statistic.name] = codec
    if left < 0:
        raise InputError(f"the budget is {budget} bits; allowed: at least {budget - left}")
    return codecs


def _half(bits: int, size: int) -> int:
    """Bits an entry in half of the budget, rounded; at most the paper's 16."""
    return min((bits + size) // (2 * size), PAPER_WIDTH)


def _quantised(width: int, size: int, budget: int) -> Uniform:
    codec = uniform(width, most=MAX_QUANTISED_WIDTH)
    if codec is None:
        raise InputError(f"the budget is {budget} bits; allowed: enough for 2 bits of each of {size:,} entries")
    return codec


def _enough(statistic: StatisticSpec, codec: Codec | None, budget: int) -> Codec:
    if codec is None:
        raise InputError(
            f"the budget is {budget} bits, which leaves too little for statistic {statistic.name!r}; allowed: a larger "
            "budget"
        )
    return codec


def _models(statistics: Sequence[StatisticSpec]) -> list[StatisticSpec]:
    return [s for s in statistics if s.comes_first]


def _extras(statistics: Sequence[StatisticSpec], fixed: Mapping[str, Codec]) -> list[StatisticSpec]:
    return [s for s in statistics if not s.comes_first and s.name not in fixed]


def _with_codec(statistics: Sequence[StatisticSpec], fixed: Mapping[str, Codec]) -> list[tuple[StatisticSpec, Codec]]:
    return [(s, fixed[s.name]) for s in statistics if s.name in fixed]


def _schema(statistics: Sequence[StatisticSpec], codecs: Mapping[str, Codec]) -> Schema:
    return Schema(tuple(Section(s.name, s.tensors, codecs[s.name]) for s in statistics))


def _explain(statistics: Sequence[StatisticSpec], fixed: Mapping[str, Codec], error: InputError) -> InputError:
    """Name the statistics that no budget shortens, as they may be why the rest does not fit."""
    taken = [f"{s.name!r} takes {codec.bits(s.tensors)}" for s, codec in _with_codec(statistics, fixed)]
    return InputError(f"{error}; of it, statistic {', '.join(taken)} by its own codec") if taken else error
