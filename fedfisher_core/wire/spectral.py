"""Our codec for symmetric positive semi-definite matrices: eigenvectors, as finely as the spectrum asks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedfisher_core.errors import CorruptArtifactError, InputError
from fedfisher_core.pivoted_cholesky import pivoted_cholesky
from fedfisher_core.wire.allocation import allocate
from fedfisher_core.wire.codec import Array, TensorSpec
from fedfisher_core.wire.columns import (
    MAX_WIDTH,
    RANGE_BITS,
    Mask,
    Rows,
    decode_rows,
    encode_rows,
    row_errors,
    row_ranges,
)
from fedfisher_core.wire.packing import BitReader, BitWriter, Codes
from fedfisher_core.wire.quantisers import short_float_codes, short_float_values
from fedfisher_core.wire.reflectors import (
    below_diagonal,
    from_reflectors,
    reflector_scales,
    to_reflectors,
)

COUNT_BITS = 16
WIDTH_BITS = 4
EIGENVALUE_BITS = 24
COLUMN_BITS = WIDTH_BITS + EIGENVALUE_BITS + RANGE_BITS
# Float32 sums over a data set leave this much asymmetry and negative spectrum, relative to the largest entry.
_TOLERANCE = 1e-3
# A pivoted Cholesky factor ends where no number on the diagonal is larger, relative to the largest: below it is what
# float32 rounds away.
_NEGLIGIBLE = 1e-6
# The least eigenvalue of L^T L, relative to its largest, with which eigenvectors of L L^T are orthonormal in float32.
_CONDITIONED = 1e-10
# Every eigenvalue is then finite in float32, rounded up or not.
_LARGEST_TRACE = float(np.finfo(np.float32).max) / 2


@dataclass(frozen=True)
class Spectral:
    """V diag(lambda) V^T + rho (I - V V^T): symmetric and positive semi-definite however it is rounded.

    V holds some eigenvectors as Householder reflectors (`reflectors`): half the numbers that two sets of
    singular vectors take, and a quarter at full rank. Rows and columns of zeros are named in a mask and left
    out. Each eigenvector has its own number of bits (reverse water-filling). Rounding eigenvector k by delta
    costs about 2 |delta|^2 mean_j (lambda_k - lambda_j)^2 over the eigenvectors j after it; leaving it out
    costs the squared distances from rho that this adds. lambda and rho are fitted to V as it is rounded.

    The bits are divided over all matrices so that the sum of their squared errors is least, each relative to
    its matrix's Frobenius norm: a Kronecker block's squared relative error is, to first order, the sum of its
    two factors', and a layer's minimiser does not depend on the scale of its block.

    Args:
        budget: bits for all matrices together; side information is included, and it is never exceeded.
    """

    budget: int

    def bits(self, tensors: Sequence[TensorSpec]) -> int:
        """The budget, an upper bound."""
        for tensor in tensors:
            _check_shape(tensor.name, tensor.shape)
        return self.budget

    def encode(self, tensors: Mapping[str, Array], writer: BitWriter) -> None:
        """Append the matrices.

        Raises:
            InputError: a tensor is not a symmetric positive semi-definite matrix, or the budget is below the
                side information of `minimum_bits`.
        """
        spectra = [_spectrum(name, array) for name, array in tensors.items()]
        fixed = sum(minimum_bits(array.shape[0]) for array in tensors.values())
        if fixed > self.budget:
            raise InputError(f"budget is {self.budget} bits; allowed: at least {fixed} for these matrices")
        distortion = np.concatenate([spectrum.distortion() for spectrum in spectra])
        cost = np.concatenate([spectrum.cost() for spectrum in spectra])
        sizes = [len(spectrum.values) for spectrum in spectra]
        widths = allocate(distortion, cost, self.budget - fixed, groups=sizes)
        for spectrum, chosen in zip(spectra, np.split(widths, np.cumsum(sizes)[:-1]), strict=True):
            _write(spectrum, chosen, writer)

    def decode(self, tensors: Sequence[TensorSpec], reader: BitReader) -> dict[str, Array]:
        """Read the matrices back.

        Raises:
            CorruptArtifactError: more eigenvectors are announced than there can be.
        """
        return {tensor.name: _read(tensor, reader) for tensor in tensors}


def minimum_bits(size: int) -> int:
    """Bits that a matrix of `size` rows takes without any eigenvector: mask, count and rho."""
    return size + COUNT_BITS + EIGENVALUE_BITS


@dataclass(frozen=True)
class _Spectrum:
    """A matrix without its zero rows, and its eigenvalues and eigenvectors in the order of sending.

    Of a matrix of low rank only as many are listed; the other eigenvalues are 0 and follow.
    """

    kept: Mask
    matrix: Rows
    values: Rows
    vectors: Rows

    def distortion(self) -> Rows:
        """Squared relative error of each eigenvector at each width, 0 standing for its absence."""
        size, rank = len(self.matrix), len(self.values)
        after = np.arange(size - 1, size - 1 - rank, -1)
        count = np.maximum(after, 1)
        tail_mean = (self.values.sum() - np.cumsum(self.values)) / count
        squares = np.square(self.values)
        tail_square = (squares.sum() - np.cumsum(squares)) / count
        difference = self.values - tail_mean
        spread = np.square(difference) + np.maximum(tail_square - np.square(tail_mean), 0)
        reflectors, free = to_reflectors(self.vectors), below_diagonal(rank, size)
        # An entry's error reaches the eigenvector multiplied by 1 + |first component| = t_k.
        sensitivity = 2 * spread * np.square(reflector_scales(reflectors))
        absent = np.square(difference) * after / (after + 1)
        options = [sensitivity * row_errors(reflectors, free, width) for width in range(1, MAX_WIDTH + 1)]
        return np.stack([absent, *options], axis=1) / np.maximum(squares.sum(), np.finfo(np.float64).tiny)

    def cost(self) -> NDArray[np.int64]:
        """Bits of each eigenvector at each width."""
        size, rank = len(self.matrix), len(self.values)
        entries = np.arange(size - 1, size - 1 - rank, -1)[:, None]
        widths = np.arange(MAX_WIDTH + 1)[None, :]
        return np.where(widths > 0, COLUMN_BITS + entries * widths, 0)


def _check_shape(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] >= 1 << COUNT_BITS:
        raise InputError(f"tensor {name!r} has shape {shape}; allowed: square, of fewer than {1 << COUNT_BITS} rows")


def _spectrum(name: str, array: Array) -> _Spectrum:
    _check_shape(name, array.shape)
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
        return _Spectrum(kept, matrix, *short)
    values, vectors = _eigh(matrix)
    order = _peel(values)
    if values.min(initial=0) < -_TOLERANCE * largest:
        raise InputError(f"tensor {name!r} has the eigenvalue {values[0]:.3g}; allowed: positive semi-definite")
    return _Spectrum(kept, matrix, np.maximum(values[order], 0), np.ascontiguousarray(vectors[:, order]))


def _eigh(matrix: Rows) -> tuple[Rows, Rows]:
    values, vectors = torch.linalg.eigh(torch.from_numpy(matrix))
    return values.numpy(), vectors.numpy()


def _few_directions(matrix: Rows) -> tuple[Rows, Rows] | None:
    """Eigenvalues that are not 0, and their eigenvectors, in the order of sending, of a matrix of low rank.

    Its pivoted Cholesky factor has as many columns: all of it costs less than the whole decomposition. A factor of few
    examples is of low rank.

    Returns:
        None where the rank is full, the matrix has more than the range of its factor, or a 0 would have its turn before
        another eigenvalue.
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

    One number stands for those that are left, so their spread should be small; a projection that leaves out
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


def _write(spectrum: _Spectrum, widths: NDArray[np.int64], writer: BitWriter) -> None:
    widths = widths[widths > 0]
    size, rank = len(spectrum.matrix), len(widths)
    writer.write(spectrum.kept.astype(np.uint32), 1)
    writer.write(np.array([rank], dtype=np.uint32), COUNT_BITS)
    reflectors, free = to_reflectors(spectrum.vectors[:, :rank]), below_diagonal(rank, size)
    ranges = row_ranges(reflectors, free, widths)
    codes = encode_rows(reflectors, ranges, widths)
    vectors = from_reflectors(decode_rows(codes, ranges, widths, free))
    mapped = (torch.from_numpy(spectrum.matrix) @ torch.from_numpy(vectors)).numpy()
    eigenvalues = np.maximum(np.einsum("ik,ik->k", vectors, mapped), 0)
    rest = max(float(np.trace(spectrum.matrix) - eigenvalues.sum()), 0.0) / max(size - rank, 1)
    _write_short_floats(np.array([rest]), writer)
    _write_short_floats(eigenvalues, writer)
    writer.write((widths - 1).astype(np.uint32), WIDTH_BITS)
    writer.write(ranges, RANGE_BITS)
    for width in np.unique(widths):
        rows = widths == width
        writer.write(codes[rows][free[rows]], int(width))


def _read(tensor: TensorSpec, reader: BitReader) -> Array:
    kept = reader.read(tensor.shape[0], 1).astype(np.bool_)
    size = int(kept.sum())
    rank = int(reader.read(1, COUNT_BITS)[0])
    if rank > size:
        raise CorruptArtifactError(f"tensor {tensor.name!r} announces {rank} eigenvectors of {size} entries each")
    rest = short_float_values(reader.read(1, EIGENVALUE_BITS), EIGENVALUE_BITS)[0]
    eigenvalues = short_float_values(reader.read(rank, EIGENVALUE_BITS), EIGENVALUE_BITS)
    widths = reader.read(rank, WIDTH_BITS).astype(np.int64) + 1
    ranges: Codes = reader.read(rank, RANGE_BITS)
    free = below_diagonal(rank, size)
    codes = np.zeros((rank, size), dtype=np.uint32)
    for width in np.unique(widths):
        chosen = free & (widths == width)[:, None]
        codes[chosen] = reader.read(int(chosen.sum()), int(width))
    vectors = from_reflectors(decode_rows(codes, ranges, widths, free))
    scaled = torch.from_numpy(vectors * (eigenvalues - rest))
    matrix = (scaled @ torch.from_numpy(vectors).T).numpy()
    matrix[np.diag_indices(size)] += rest
    decoded = np.zeros(tensor.shape, dtype=np.float32)
    decoded[np.ix_(kept, kept)] = (matrix + matrix.T) / 2
    return decoded


def _write_short_floats(values: Rows, writer: BitWriter) -> None:
    writer.write(short_float_codes(values, EIGENVALUE_BITS, upwards=False), EIGENVALUE_BITS)
