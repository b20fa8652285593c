"""The eigenvectors of a symmetric positive semi-definite matrix, as few numbers as they have degrees of freedom."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedfisher_core.communication.wire.codec import Array, Codes
from fedfisher_core.communication.wire.elementwise import (
    midrise_codes,
    midrise_values,
    short_float_codes,
    short_float_values,
)
from fedfisher_core.engine.errors import InputError
from fedfisher_core.fisher.pivoted_cholesky import pivoted_cholesky

MAX_WIDTH = 16
RANGE_BITS = 16
# Half-ranges, in standard deviations, at which 2**width equal intervals have the least error for a normal
# distribution (Max 1960, table 2); from 7 bits on the largest entry is about as good.
_NORMAL_RANGES = {1: 1.596, 2: 1.991, 3: 2.344, 4: 2.680, 5: 3.010, 6: 3.331}
# Entries of one call: its intermediate results fit into a core's own cache.
_BLOCK = 2**15

Rows = NDArray[np.float64]
Mask = NDArray[np.bool_]

Matrix = NDArray[np.float64]
COUNT_BITS = 16
"""Bits that count the eigenvectors of a matrix."""
# Float32 sums over a data set leave this much asymmetry and negative spectrum, relative to the largest entry.
_TOLERANCE = 1e-3
# A pivoted Cholesky factor ends where no number on the diagonal is larger, relative to the largest: below it is what
# float32 rounds away.
_NEGLIGIBLE = 1e-6
# The least eigenvalue of L^T L, relative to its largest, with which eigenvectors of L L^T are orthonormal in float32.
_CONDITIONED = 1e-10
# Every eigenvalue is then finite in float32, rounded up or not.
_LARGEST_TRACE = float(np.finfo(np.float32).max) / 2


def row_errors(rows: Rows, free: Mask, width: int) -> Rows:
    """Squared error of each row at one width.

    Args:
        rows: vectors, shape (r, n).
        free: which of their entries are sent, same shape; the others are 0.
        width: bits an entry, 1 to 16.

    Returns:
        Shape (r,). Beyond 6 bits, errors are spread evenly over an interval, and its size gives them.
    """
    if width in _NORMAL_RANGES:
        return _best_range(rows, free, width)[1]
    cell = 2 * np.abs(rows).max(axis=1, initial=0) / 2**width
    return free.sum(axis=1) * np.square(cell) / 12


def row_ranges(rows: Rows, free: Mask, widths: NDArray[np.int64]) -> Codes:
    """Choose the range that each row's codes cover, encoded in 16 bits; shapes are those of `row_errors`.

    Args:
        widths: bits an entry of each row, shape (r,).
    """
    ranges = np.abs(rows).max(axis=1, initial=0)
    for width in set(widths.tolist()) & set(_NORMAL_RANGES):
        chosen = widths == width
        ranges[chosen] = _best_range(rows[chosen], free[chosen], width)[0]
    return short_float_codes(ranges, RANGE_BITS, upwards=True)


def encode_rows(rows: Rows, ranges: Codes, widths: NDArray[np.int64]) -> Codes:
    """Codes of all entries at each row's range and width, in the rows' shape."""
    return midrise_codes(rows, short_float_values(ranges, RANGE_BITS)[:, None], widths[:, None])


def decode_rows(codes: Codes, ranges: Codes, widths: NDArray[np.int64], free: Mask) -> Rows:
    """Undo `encode_rows`; entries that are not free are 0."""
    scale = short_float_values(ranges, RANGE_BITS)[:, None]
    return np.where(free, midrise_values(codes, scale, widths[:, None]), 0.0)


def _best_range(rows: Rows, free: Mask, width: int) -> tuple[Rows, Rows]:
    """The better range, the largest entry or the normal distribution's best, with its squared error."""
    size = max(1, _BLOCK // max(rows.shape[1], 1))
    parts = [
        _best_range_of_block(rows[start : start + size], free[start : start + size], width)
        for start in range(0, max(len(rows), 1), size)
    ]
    ranges, errors = zip(*parts, strict=True)
    return np.concatenate(ranges), np.concatenate(errors)


def _best_range_of_block(rows: Rows, free: Mask, width: int) -> tuple[Rows, Rows]:
    largest = np.abs(rows).max(axis=1, initial=0)
    deviation = np.sqrt(np.square(rows).sum(axis=1) / np.maximum(free.sum(axis=1), 1))
    candidates = [largest, np.minimum(largest, _NORMAL_RANGES[width] * deviation)]
    widths = np.full((len(rows), 1), width)
    errors = []
    for candidate in candidates:
        scale = candidate[:, None]
        rounded = midrise_values(midrise_codes(rows, scale, widths), scale, widths)
        errors.append(np.where(free, np.square(rows - rounded), 0.0).sum(axis=1))
    clipped = errors[1] < errors[0]
    return np.where(clipped, candidates[1], candidates[0]), np.where(clipped, errors[1], errors[0])


def to_reflectors(columns: Matrix) -> Matrix:
    """Write orthonormal columns as a product of reflections.

    Up to its sign, column k is H_1 ... H_k e_k with H_k = I - t_k v_k v_k^T, where v_k is 0 above row k, 1 in
    row k, and t_k = 2 / |v_k|^2. The product is orthonormal for any entries below row k. So errors in them rotate
    eigenvectors but never make them dependent or of another length.

    Args:
        columns: shape (..., n, r), r <= n, with orthonormal columns.

    Returns:
        The entries below the diagonal, 0 elsewhere, by reflector: row k of shape (..., r, n) holds v_k.
    """
    factored, _ = torch.geqrf(torch.from_numpy(columns))
    return torch.tril(factored, -1).mT.contiguous().numpy()


def from_reflectors(reflectors: Matrix) -> Matrix:
    """Undo `to_reflectors`, shape (..., r, n) to (..., n, r), up to the sign of each column."""
    lower = torch.from_numpy(reflectors).mT
    return torch.linalg.householder_product(lower, torch.from_numpy(reflector_scales(reflectors))).numpy()


def reflector_scales(reflectors: Matrix) -> Matrix:
    """The t_k = 2 / (1 + the squared entries' sum), shape (..., r)."""
    return 2 / (1 + np.square(reflectors).sum(axis=-1))


def below_diagonal(rank: int, size: int) -> NDArray[np.bool_]:
    """Which entries of `to_reflectors`' result are free, shape (rank, size)."""
    return np.arange(size)[None, :] > np.arange(rank)[:, None]


@dataclass(frozen=True)
class Spectrum:
    """A matrix without its zero rows, and its eigenvalues and eigenvectors in the order of sending.

    Of a matrix of low rank only as many are listed; the other eigenvalues are 0 and come after them.

    Args:
        kept: which rows are not 0, shape (n,); m of them.
        matrix: these rows and columns, shape (m, m).
        values: eigenvalues, shape (r,).
        vectors: eigenvectors in columns, shape (m, r).
    """

    kept: Mask
    matrix: Rows
    values: Rows
    vectors: Rows


def check_shape(name: str, shape: tuple[int, ...]) -> None:
    """Refuse, by an InputError, a tensor that is not a square matrix whose eigenvectors can be counted."""
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] >= 1 << COUNT_BITS:
        raise InputError(f"tensor {name!r} has shape {shape}; allowed: square, of fewer than {1 << COUNT_BITS} rows")


def decompose(name: str, array: Array) -> Spectrum:
    """Find the eigenvalues of a matrix that are not 0, and their eigenvectors.

    Raises:
        InputError: it is not a symmetric positive semi-definite matrix, or too large a one.
    """
    check_shape(name, array.shape)
    matrix = array.astype(np.float64)
    largest = np.abs(matrix).max(initial=0)
    asymmetry = np.abs(matrix - matrix.T).max(initial=0)
    if asymmetry > _TOLERANCE * largest:
        raise InputError(f"tensor {name!r} differs from its transpose by {asymmetry:.3g}; allowed: symmetric")
    if np.trace(matrix) > _LARGEST_TRACE:
        raise InputError(f"tensor {name!r} has the trace {np.trace(matrix):.3g}; allowed: up to {_LARGEST_TRACE:.3g}")
    kept = np.any(matrix, axis=1)
    matrix = ((matrix + matrix.T) / 2)[np.ix_(kept, kept)]
    short = _few_directions(matrix)
    if short is not None:
        return Spectrum(kept, matrix, *short)
    values, vectors = _eigh(matrix)
    order = _peel(values)
    if values.min(initial=0) < -_TOLERANCE * largest:
        raise InputError(f"tensor {name!r} has the eigenvalue {values[0]:.3g}; allowed: positive semi-definite")
    return Spectrum(kept, matrix, np.maximum(values[order], 0), np.ascontiguousarray(vectors[:, order]))


def _eigh(matrix: Rows) -> tuple[Rows, Rows]:
    values, vectors = torch.linalg.eigh(torch.from_numpy(matrix))
    return values.numpy(), vectors.numpy()


def _few_directions(matrix: Rows) -> tuple[Rows, Rows] | None:
    """Eigenvalues that are not 0, and their eigenvectors, in the order of sending, of a matrix of low rank.

    The pivoted Cholesky factor has as many columns, and costs less than the whole decomposition. A factor of few
    examples is of low rank.

    Returns:
        None where the rank is full, the matrix has more than the range of its factor, or a 0 would come before another
        eigenvalue.
    """
    size = len(matrix)
    if size == 0:
        return None
    largest = matrix.diagonal().max()
    whole = torch.from_numpy(matrix)
    factor = torch.from_numpy(pivoted_cholesky(matrix, tolerance=_NEGLIGIBLE * largest))
    if not 0 < factor.shape[1] < size:
        return None
    error = _TOLERANCE * largest
    found = _of_product(whole, factor, error=error)
    if found is None:
        found = _of_range(whole, factor, error=error)
    if found is None:
        return None
    values, vectors = found
    rank = len(values)
    order = _peel(np.concatenate([np.zeros(size - rank), values]))[:rank] - (size - rank)
    return None if order.min() < 0 else (values[order], np.ascontiguousarray(vectors[:, order]))


def _of_product(matrix: torch.Tensor, factor: torch.Tensor, *, error: float) -> tuple[Rows, Rows] | None:
    """Ascending eigenvalues of L L^T, which L^T L has too, and eigenvectors.

    Returns:
        None where L L^T is not the matrix, or columns of L almost depend on each other.
    """
    if not (matrix - factor @ factor.T).abs().max() <= error:
        return None
    values, turned = _eigh((factor.T @ factor).numpy())
    if values[0] < _CONDITIONED * values[-1]:
        return None
    return values, (factor @ torch.from_numpy(turned)).numpy() / np.sqrt(values)


def _of_range(matrix: torch.Tensor, factor: torch.Tensor, *, error: float) -> tuple[Rows, Rows] | None:
    """The same of a matrix that has the range of L, where L L^T magnifies the rounding of the last pivots."""
    basis = torch.linalg.qr(factor).Q
    inside = basis.T @ matrix @ basis
    if not (matrix - basis @ inside @ basis.T).abs().max() <= error:
        return None
    values, turned = _eigh(((inside + inside.T) / 2).numpy())
    if values[0] < -error or values[-1] <= 0:
        return None
    # What rounding leaves below 0 counts among the zeros.
    return values[values > 0], (basis @ torch.from_numpy(turned[:, values > 0])).numpy()


def _peel(values: Rows) -> NDArray[np.int64]:
    """Order in which ascending eigenvalues are taken from either end, the farther from the mean first.

    One number replaces the remaining ones, so their spread should be small. A projection that leaves out
    a few directions is sent as those few.
    """
    first, last, total = 0, len(values) - 1, float(values.sum())
    order = np.empty(len(values), dtype=np.int64)
    for position in range(len(values)):
        mean = total / (last - first + 1)
        if values[last] - mean >= mean - values[first]:
            order[position], last = last, last - 1
        else:
            order[position], first = first, first + 1
        total -= float(values[order[position]])
    return order
