"""This project's codec for symmetric positive semi-definite matrices: eigenvectors, as finely as the spectrum needs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedfisher_core.communication.wire.codec import Array, BitReader, BitWriter, Codes, TensorSpec
from fedfisher_core.communication.wire.elementwise import short_float_codes, short_float_values
from fedfisher_core.communication.wire.spectra import (
    COUNT_BITS,
    MAX_WIDTH,
    RANGE_BITS,
    Mask,
    Rows,
    Spectrum,
    below_diagonal,
    check_shape,
    decode_rows,
    decompose,
    encode_rows,
    from_reflectors,
    reflector_scales,
    row_errors,
    row_ranges,
    to_reflectors,
)
from fedfisher_core.engine.errors import CorruptArtifactError, InputError

_BISECTIONS = 60

Table = NDArray[np.float64]
Bits = NDArray[np.int64]

WIDTH_BITS = 4
EIGENVALUE_BITS = 24
COLUMN_BITS = WIDTH_BITS + EIGENVALUE_BITS + RANGE_BITS
# Entries of the matrices of one call: many small ones share it, and a large one is alone.
_TOGETHER = 2**20


def allocate(distortion: Table, cost: Bits, budget: int, *, groups: Sequence[int]) -> Bits:
    """Choose one option for each quantity within a common budget; in each group only the first ones are sent.

    The choice that minimises distortion + price * cost, at the lowest price that fits the budget, is the best
    of all choices of its cost (Lagrangian relaxation; Shoham and Gersho 1988). What is left is spent on the
    steps that lower the distortion most per bit.

    Args:
        distortion: squared error of each option, shape (quantities, options); option 0 is not to send it.
        cost: bits of each option, same shape, increasing along the options from 0.
        budget: bits, not negative.
        groups: sizes of groups of consecutive quantities; one may be sent only if all before it in its group are.

    Returns:
        The option of each quantity, shape (quantities,).
    """
    members = _members(groups)
    low, high = 0.0, 2 * float(distortion.max(initial=0)) + np.finfo(np.float64).tiny
    options = _cheapest(distortion, cost, low, members)
    if _total(cost, options) <= budget:
        return options
    # A bit at the high price costs more than any distortion. Divisions find the price's scale, bisection its digits.
    low = high
    while _total(cost, _cheapest(distortion, cost, low, members)) <= budget:
        high, low = low, low / 16
    for _ in range(_BISECTIONS):
        price = (low + high) / 2
        if _total(cost, _cheapest(distortion, cost, price, members)) <= budget:
            high = price
        else:
            low = price
    options = _cheapest(distortion, cost, high, members)
    return _spend(distortion, cost, options, budget - _total(cost, options), groups)


def _total(cost: Bits, options: Bits) -> int:
    return int(cost[np.arange(len(options)), options].sum())


def _members(groups: Sequence[int]) -> list[Bits]:
    """The positions of the quantities of all groups of one size, shape (groups, size), for every size."""
    sizes = np.array(groups, dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    return [starts[sizes == size][:, None] + np.arange(size) for size in np.unique(sizes[sizes > 0])]


def _cheapest(distortion: Table, cost: Bits, price: float, members: Sequence[Bits]) -> Bits:
    """The choice of least distortion + price * cost."""
    value = distortion + price * cost
    options = 1 + np.argmin(value[:, 1:], axis=1)
    gain = value[:, 0] - value[np.arange(len(value)), options]
    for rows in members:
        gains = np.cumsum(gain[rows], axis=1)
        # Sending none gains 0.
        sent = np.where(gains.max(axis=1) > 0, gains.argmax(axis=1) + 1, 0)
        options[rows[np.arange(rows.shape[1]) >= sent[:, None]]] = 0
    return options


def _spend(distortion: Table, cost: Bits, options: Bits, left: int, groups: Sequence[int]) -> Bits:
    """Buy single improvements, the best per bit first, until none fits."""
    rows = np.arange(len(options))
    first = np.zeros(len(options), dtype=np.bool_)
    first[np.cumsum([0, *groups[:-1]])[np.array(groups) > 0]] = True
    options = options.copy()
    while True:
        reachable = (options > 0) | first | (np.roll(options, 1) > 0)
        gain = distortion[rows, options][:, None] - distortion
        extra = cost - cost[rows, options][:, None]
        allowed = reachable[:, None] & (gain > 0) & (extra > 0) & (extra <= left)
        if not allowed.any():
            return options
        rate = np.where(allowed, gain / np.maximum(extra, 1), 0.0)
        row, option = np.unravel_index(int(rate.argmax()), rate.shape)
        left -= int(extra[row, option])
        options[row] = option


@dataclass(frozen=True)
class Spectral:
    """V diag(lambda) V^T + rho (I - V V^T): symmetric and positive semi-definite after any rounding.

    V holds some eigenvectors as Householder reflectors (`to_reflectors`): half the numbers that two sets of
    singular vectors take, and a quarter at full rank. Rows and columns of zeros are named in a mask and left
    out. Each eigenvector has its own number of bits (reverse water-filling). Rounding eigenvector k by delta
    costs about 2 |delta|^2 mean_j (lambda_k - lambda_j)^2 over the eigenvectors j after it. Leaving it out
    costs the squared distances from rho that this adds. lambda and rho are fitted to V as it is rounded.

    The bits are divided over all matrices so that the sum of their squared errors is least, each relative to
    its matrix's Frobenius norm: a Kronecker block's squared relative error is, to first order, the sum of its
    two factors', and a layer's minimiser does not depend on the scale of its block.

    The stream begins with the masks and the numbers of eigenvectors of all matrices. Both ends know then which
    matrices are alike, and the rest comes by batches of these. So a layer with a small matrix for each of a
    thousand channels takes no longer than one with a large matrix.

    Args:
        budget: bits for all matrices together; side information is included, and it is never exceeded.
    """

    budget: int

    def bits(self, tensors: Sequence[TensorSpec]) -> int:
        """The budget, an upper bound."""
        for tensor in tensors:
            check_shape(tensor.name, tensor.shape)
        return self.budget

    def encode(self, tensors: Mapping[str, Array], writer: BitWriter) -> None:
        """Append the matrices.

        Raises:
            InputError: a tensor is not a symmetric positive semi-definite matrix, or the budget is below the
                side information of `minimum_bits`.
        """
        spectra = [decompose(name, array) for name, array in tensors.items()]
        fixed = sum(minimum_bits(array.shape[0]) for array in tensors.values())
        if fixed > self.budget:
            raise InputError(f"budget is {self.budget} bits; allowed: at least {fixed} for these matrices")
        widths = _divide(spectra, self.budget - fixed)
        ranks = [len(some) for some in widths]
        writer.write(np.concatenate([spectrum.kept for spectrum in spectra]).astype(np.uint32), 1)
        writer.write(np.array(ranks, dtype=np.uint32), COUNT_BITS)
        for batch in _batches([len(spectrum.matrix) for spectrum in spectra], ranks):
            _write([spectra[one] for one in batch.members], np.stack([widths[one] for one in batch.members]), writer)

    def decode(self, tensors: Sequence[TensorSpec], reader: BitReader) -> dict[str, Array]:
        """Read the matrices back; a CorruptArtifactError where more eigenvectors are announced than there can be."""
        rows = [tensor.shape[0] for tensor in tensors]
        kept = np.split(reader.read(sum(rows), 1).astype(np.bool_), np.cumsum(rows)[:-1])
        sizes = [int(mask.sum()) for mask in kept]
        ranks = reader.read(len(tensors), COUNT_BITS).tolist()
        for tensor, size, rank in zip(tensors, sizes, ranks, strict=True):
            if rank > size:
                raise CorruptArtifactError(
                    f"tensor {tensor.name!r} announces {rank} eigenvectors of {size} entries each"
                )
        decoded = {tensor.name: np.zeros(tensor.shape, dtype=np.float32) for tensor in tensors}
        for batch in _batches(sizes, ranks):
            for one, matrix in zip(batch.members, _read(batch, reader), strict=True):
                decoded[tensors[one].name][np.ix_(kept[one], kept[one])] = matrix
        return decoded


def minimum_bits(size: int) -> int:
    """Bits that a matrix of `size` rows takes without any eigenvector: mask, count and rho."""
    return size + COUNT_BITS + EIGENVALUE_BITS


@dataclass(frozen=True)
class _Batch:
    """Matrices with `size` rows and `rank` eigenvectors each; members are their positions among all."""

    size: int
    rank: int
    members: list[int]


def _batches(sizes: Sequence[int], ranks: Sequence[int]) -> list[_Batch]:
    """Group matrices that can be computed together, in an order that both ends find."""
    alike = defaultdict[tuple[int, int], list[int]](list)
    for position, shape in enumerate(zip(sizes, ranks, strict=True)):
        alike[shape].append(position)
    found = []
    for (size, rank), members in sorted(alike.items()):
        most = max(1, _TOGETHER // max(1, size * size))
        found += [_Batch(size, rank, members[start : start + most]) for start in range(0, len(members), most)]
    return found


def _divide(spectra: Sequence[Spectrum], bits: int) -> list[NDArray[np.int64]]:
    """Choose how many eigenvectors of each matrix are sent, and the width of each of them."""
    sizes, listed = [len(spectrum.matrix) for spectrum in spectra], [len(spectrum.values) for spectrum in spectra]
    ends = np.cumsum(listed)
    distortion = np.empty((sum(listed), MAX_WIDTH + 1))
    cost = np.empty(distortion.shape, dtype=np.int64)
    for batch in _batches(sizes, listed):
        rows = (ends[batch.members] - batch.rank)[:, None] + np.arange(batch.rank)
        distortion[rows] = _distortion([spectra[one] for one in batch.members])
        cost[rows] = _cost(batch.size, batch.rank)
    widths = np.split(allocate(distortion, cost, bits, groups=listed), ends[:-1])
    return [some[some > 0] for some in widths]


def _distortion(spectra: Sequence[Spectrum]) -> Rows:
    """Squared relative error of each eigenvector at each width, shape (matrices, r, widths); width 0 leaves it out."""
    values, vectors = _stacked([one.values for one in spectra]), _stacked([one.vectors for one in spectra])
    size, rank = vectors.shape[1:]
    after = np.arange(size - 1, size - 1 - rank, -1)
    count = np.maximum(after, 1)
    tail_mean = (values.sum(axis=1, keepdims=True) - np.cumsum(values, axis=1)) / count
    squares = np.square(values)
    total = squares.sum(axis=1, keepdims=True)
    tail_square = (total - np.cumsum(squares, axis=1)) / count
    difference = values - tail_mean
    spread = np.square(difference) + np.maximum(tail_square - np.square(tail_mean), 0)
    reflectors, free = _listed(to_reflectors(vectors)), _free(len(spectra), size, rank)
    # The eigenvector's error is that of an entry times 1 + |first component| = t_k.
    sensitivity = 2 * spread * np.square(reflector_scales(reflectors)).reshape(values.shape)
    absent = np.square(difference) * after / (after + 1)
    errors = [row_errors(reflectors, free, width).reshape(values.shape) for width in range(1, MAX_WIDTH + 1)]
    options = np.stack([absent, *(sensitivity * error for error in errors)], axis=2)
    return options / np.maximum(total, np.finfo(np.float64).tiny)[:, :, None]


def _cost(size: int, rank: int) -> NDArray[np.int64]:
    """Bits of each eigenvector at each width, shape (r, widths)."""
    entries = np.arange(size - 1, size - 1 - rank, -1)[:, None]
    widths = np.arange(MAX_WIDTH + 1)[None, :]
    return np.where(widths > 0, COLUMN_BITS + entries * widths, 0)


def _write(spectra: Sequence[Spectrum], widths: NDArray[np.int64], writer: BitWriter) -> None:
    """Append matrices of one size, with as many eigenvectors as there are columns of widths."""
    count, rank = widths.shape
    matrices = _stacked([one.matrix for one in spectra])
    size = matrices.shape[1]
    vectors = _stacked([one.vectors[:, :rank] for one in spectra])
    reflectors, free, flat = _listed(to_reflectors(vectors)), _free(count, size, rank), widths.ravel()
    ranges = row_ranges(reflectors, free, flat)
    codes = encode_rows(reflectors, ranges, flat)
    rounded = from_reflectors(decode_rows(codes, ranges, flat, free).reshape(count, rank, size))
    mapped = (torch.from_numpy(matrices) @ torch.from_numpy(rounded)).numpy()
    eigenvalues = np.maximum(np.einsum("mik,mik->mk", rounded, mapped), 0)
    traces = np.trace(matrices, axis1=1, axis2=2)
    _write_short_floats(np.maximum(traces - eigenvalues.sum(axis=1), 0.0) / max(size - rank, 1), writer)
    _write_short_floats(eigenvalues.ravel(), writer)
    writer.write((flat - 1).astype(np.uint32), WIDTH_BITS)
    writer.write(ranges, RANGE_BITS)
    for width in np.unique(flat):
        rows = flat == width
        writer.write(codes[rows][free[rows]], int(width))


def _read(batch: _Batch, reader: BitReader) -> Array:
    """Undo `_write`, shape (matrices, size, size)."""
    count, size, rank = len(batch.members), batch.size, batch.rank
    rest = _read_short_floats(count, reader)[:, None]
    eigenvalues = _read_short_floats(count * rank, reader).reshape(count, rank)
    widths = reader.read(count * rank, WIDTH_BITS).astype(np.int64) + 1
    ranges: Codes = reader.read(count * rank, RANGE_BITS)
    free = _free(count, size, rank)
    codes = np.zeros((count * rank, size), dtype=np.uint32)
    for width in np.unique(widths):
        chosen = free & (widths == width)[:, None]
        codes[chosen] = reader.read(int(chosen.sum()), int(width))
    vectors = from_reflectors(decode_rows(codes, ranges, widths, free).reshape(count, rank, size))
    scaled = torch.from_numpy(vectors * (eigenvalues - rest)[:, None, :])
    matrices = (scaled @ torch.from_numpy(vectors).transpose(1, 2)).numpy()
    matrices[:, np.arange(size), np.arange(size)] += rest
    return ((matrices + matrices.transpose(0, 2, 1)) / 2).astype(np.float32)


def _stacked(arrays: Sequence[Rows]) -> Rows:
    """Stack arrays of one shape; one alone is not copied."""
    return arrays[0][None] if len(arrays) == 1 else np.stack(arrays)


def _listed(reflectors: Rows) -> Rows:
    """The reflectors of all matrices as the rows of one matrix."""
    count, rank, size = reflectors.shape
    return reflectors.reshape(count * rank, size)


def _free(count: int, size: int, rank: int) -> Mask:
    """Which entries of all matrices' reflectors are sent, in the shape of `_listed`."""
    return np.tile(below_diagonal(rank, size), (count, 1))


def _write_short_floats(values: Rows, writer: BitWriter) -> None:
    writer.write(short_float_codes(values, EIGENVALUE_BITS, upwards=False), EIGENVALUE_BITS)


def _read_short_floats(count: int, reader: BitReader) -> Rows:
    return short_float_values(reader.read(count, EIGENVALUE_BITS), EIGENVALUE_BITS)
