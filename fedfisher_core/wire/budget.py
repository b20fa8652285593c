"""Which codec each statistic gets, so that an upload fits a budget."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from fedfisher_core.errors import InputError
from fedfisher_core.wire.codec import Codec, TensorSpec
from fedfisher_core.wire.elementwise import MAX_QUANTISED_WIDTH, SCALE_BITS, Float32, Root, Uniform
from fedfisher_core.wire.low_rank import LowRank
from fedfisher_core.wire.payload import HEADER_BITS, Schema, Section
from fedfisher_core.wire.spectral import Spectral, minimum_bits

_PAPER_WIDTH = 16
PAPER_FACTOR_BITS = 9


class Kind(StrEnum):
    """What a statistic's tensors are, which decides how they can be shortened."""

    WEIGHTS = "weights"
    NONNEGATIVE = "nonnegative"  # a diagonal Fisher, summed squared gradients
    SYMMETRIC = "symmetric"  # Kronecker factors, Gram matrices, projections: positive semi-definite matrices
    EXACT = "exact"  # small and never shortened: label counts


class Family(StrEnum):
    """Whose formats are used: none, the FedFisher paper's, or this project's."""

    FLOAT32 = "float32"
    PAPER = "paper"
    FEDFISHER = "fedfisher"


@dataclass(frozen=True)
class StatisticSpec:
    """One statistic of an upload.

    Args:
        name: of the statistic.
        kind: of all its tensors.
        tensors: names and shapes.
    """

    name: str
    kind: Kind
    tensors: tuple[TensorSpec, ...]

    @property
    def size(self) -> int:
        """Number of entries."""
        return sum(tensor.size for tensor in self.tensors)

    @property
    def freedom(self) -> int:
        """Number of entries that are not known from the others by symmetry."""
        if self.kind is not Kind.SYMMETRIC:
            return self.size
        return sum(tensor.shape[0] * (tensor.shape[0] + 1) // 2 for tensor in self.tensors)


def fedavg_bits(statistics: Sequence[StatisticSpec]) -> int:
    """What federated averaging sends: the header and 32 bits a weight.

    Args:
        statistics: an upload; only its weights count.

    Returns:
        Bits.
    """
    return HEADER_BITS + 32 * _size(statistics, Kind.WEIGHTS)


def fit(
    statistics: Sequence[StatisticSpec],
    *,
    family: Family,
    budget_bits: int | None,
    factor_bits: int = PAPER_FACTOR_BITS,
) -> Schema:
    """Choose codecs for an upload.

    `FLOAT32`, and any family without a budget, sends everything as it is. So do the others when that fits.

    `PAPER` gives the weights half of the budget, 16 bits an entry if that is FedAvg's, and the rest to one
    further statistic: at most 16 bits an entry of a diagonal, or all matrices at the rank
    floor(rest / (b - 1) / sum(2 n + 1)), n each matrix's size and b the bits of an entry, which for b = 9 is
    floor(2 d / sum(2 n + 1)). As in the paper, that rank counts no signs and no scales, so that the payload
    exceeds the budget: by 3.4% for K-FAC on LeNet.

    `FEDFISHER` never exceeds the budget. Weights get half of it, at most 16 bits an entry; the rest is
    divided by the statistics' degrees of freedom; diagonals are sent as `Root`, matrices as `Spectral`.

    Args:
        statistics: what the upload consists of.
        family: whose formats.
        budget_bits: of the whole payload, header included; `fedavg_bits` gives the usual one. None: no limit.
        factor_bits: bits of an entry of the singular vectors (`PAPER`), at least 2.

    Returns:
        The schema, which depends on the shapes alone, so that both ends can derive it.

    Raises:
        InputError: nothing of the family fits the budget, or the family has no format for the statistics.
    """
    for statistic in statistics:
        _check(statistic)
    plain = _schema(statistics, {statistic.name: Float32() for statistic in statistics})
    if budget_bits is None or plain.bits <= budget_bits:
        return plain
    if family is Family.FLOAT32:
        raise InputError(
            f"family 'float32' takes {plain.bits} bits, budget_bits is {budget_bits}; "
            "allowed: a larger budget, none, or the family 'paper' or 'fedfisher'"
        )
    if family is Family.PAPER:
        return _schema(statistics, _paper(statistics, budget_bits, factor_bits))
    schema = _schema(statistics, _ours(statistics, budget_bits))
    if schema.bits > budget_bits:
        raise InputError(f"budget_bits is {budget_bits}; allowed: at least {schema.bits}")
    return schema


def _ours(statistics: Sequence[StatisticSpec], budget: int) -> dict[str, Codec]:
    left = budget - HEADER_BITS - 32 * _size(statistics, Kind.EXACT)
    # The payload is padded to a byte, so a budget of other lengths is one of whole bytes.
    left -= left % 8
    codecs: dict[str, Codec] = {s.name: Float32() for s in statistics if s.kind is Kind.EXACT}
    extras = [s for s in statistics if s.kind in (Kind.NONNEGATIVE, Kind.SYMMETRIC)]
    weights = [s for s in statistics if s.kind is Kind.WEIGHTS]
    size = _size(weights, Kind.WEIGHTS)
    scales = SCALE_BITS * sum(len(s.tensors) for s in weights)
    if weights and size:
        width = _half(left, size) if extras else min((left - scales) // size, MAX_QUANTISED_WIDTH)
        codecs |= {s.name: _uniform(width, budget) for s in weights}
        left -= width * size + scales
    freedom = sum(s.freedom for s in extras)
    for statistic in extras:
        share = left * statistic.freedom // max(freedom, 1)
        codecs[statistic.name] = _extra(statistic, share, budget)
    return codecs


def _extra(statistic: StatisticSpec, share: int, budget: int) -> Codec:
    if Float32().bits(statistic.tensors) <= share:
        return Float32()
    if statistic.kind is Kind.NONNEGATIVE:
        return Root(_widths(statistic, share, budget))
    least = sum(minimum_bits(tensor.shape[0]) for tensor in statistic.tensors)
    if share < least:
        raise _too_small(statistic, budget)
    return Spectral(share)


def _widths(statistic: StatisticSpec, share: int, budget: int) -> tuple[int, ...]:
    """The same width for all tensors, and one bit more for the largest that still find room."""
    share -= SCALE_BITS * len(statistic.tensors)
    base = min(share // statistic.size, MAX_QUANTISED_WIDTH)
    if base < 1:
        raise _too_small(statistic, budget)
    left = share - base * statistic.size
    widths = [base] * len(statistic.tensors)
    for index in sorted(range(len(widths)), key=lambda index: -statistic.tensors[index].size):
        if statistic.tensors[index].size <= left and base < MAX_QUANTISED_WIDTH:
            widths[index] += 1
            left -= statistic.tensors[index].size
    return tuple(widths)


def _paper(statistics: Sequence[StatisticSpec], budget: int, factor_bits: int) -> dict[str, Codec]:
    extras = [s for s in statistics if s.kind in (Kind.NONNEGATIVE, Kind.SYMMETRIC)]
    if len(extras) > 1:
        names = ", ".join(repr(s.name) for s in extras)
        raise InputError(f"family 'paper' has statistics {names}; allowed: one beside the weights")
    left = budget - HEADER_BITS
    codecs: dict[str, Codec] = {s.name: Float32() for s in statistics if s.kind is Kind.EXACT}
    size = _size(statistics, Kind.WEIGHTS)
    if size:
        width = _half(left, size) if extras else min(left // size, MAX_QUANTISED_WIDTH)
        codecs |= {s.name: _uniform(width, budget) for s in statistics if s.kind is Kind.WEIGHTS}
        left -= width * size
    for statistic in extras:
        if statistic.kind is Kind.NONNEGATIVE:
            codecs[statistic.name] = _uniform(min(left // statistic.size, _PAPER_WIDTH), budget)
            continue
        rank = left // ((factor_bits - 1) * sum(2 * tensor.shape[0] + 1 for tensor in statistic.tensors))
        if rank < 1:
            raise _too_small(statistic, budget)
        codecs[statistic.name] = LowRank(rank, factor_bits - 1)
    return codecs


def _half(bits: int, size: int) -> int:
    """Bits an entry that half the budget comes to, rounded; the paper's 16 or less."""
    return min((bits + size) // (2 * size), _PAPER_WIDTH)


def _uniform(width: int, budget: int) -> Uniform:
    if width < 2:
        raise InputError(f"budget_bits is {budget}; allowed: enough for 2 bits an entry")
    return Uniform(width - 1)


def _too_small(statistic: StatisticSpec, budget: int) -> InputError:
    return InputError(f"budget_bits is {budget}, which leaves too little for statistic {statistic.name!r}")


def _size(statistics: Sequence[StatisticSpec], kind: Kind) -> int:
    return sum(s.size for s in statistics if s.kind is kind)


def _schema(statistics: Sequence[StatisticSpec], codecs: dict[str, Codec]) -> Schema:
    return Schema(tuple(Section(s.name, s.tensors, codecs[s.name]) for s in statistics))


def _check(statistic: StatisticSpec) -> None:
    if statistic.size == 0:
        raise InputError(f"statistic {statistic.name!r} has no entries; allowed: at least one")
    for tensor in statistic.tensors:
        square = len(tensor.shape) == 2 and tensor.shape[0] == tensor.shape[1]
        if statistic.kind is Kind.SYMMETRIC and not square:
            raise InputError(
                f"tensor {tensor.name!r} of statistic {statistic.name!r} has shape {tensor.shape}; "
                "allowed: a square matrix"
            )
