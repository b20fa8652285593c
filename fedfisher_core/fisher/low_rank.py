"""Sums of Kronecker blocks whose input factors have low rank, because examples are few or a budget cut them.

A budget that keeps the leading directions may replace all others by one number: a multiple of the identity.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfisher_core.fisher.kronecker import KroneckerSum
from fedfisher_core.fisher.pivoted_cholesky import pivoted_cholesky

TOLERANCE = 1e-6
"""Part of a factor's Frobenius norm that may be left out; products in single precision have the same error."""

WORTH = 0.8
"""Low rank is used if it takes at most this part of the multiplications; otherwise finding it does not pay."""

_CHECKS = 8
_SEED = 0
# Steps of inverse iteration; few suffice, as the number for directions not kept is far below the other eigenvalues.
_ITERATIONS = 4


@dataclass(frozen=True)
class LowRankSum:
    """A `KroneckerSum` with A_i = rho_i I + L_i R_i, which multiplies by the r_i columns of L_i instead of all of A_i.

    Args:
        left: the L_i side by side, client by client, shape (a, sum_i r_i).
        right: the R_i below one another, shape (sum_i r_i, a).
        ranks: the r_i.
        outputs: p_i G_i, shape (clients, g, g).
        rest: sum_i rho_i p_i G_i, shape (g, g).
    """

    left: Tensor
    right: Tensor
    ranks: tuple[int, ...]
    outputs: Tensor
    rest: Tensor

    def product(self, matrix: Tensor) -> Tensor:
        """Multiply the operator by a vector; see `KroneckerSum.product`."""
        alongs = (matrix @ self.left).split(self.ranks, dim=1)
        turned = torch.cat([output @ along for output, along in zip(self.outputs, alongs, strict=True)], dim=1)
        return torch.addmm(self.rest @ matrix, turned, self.right)

    def diagonal(self) -> Tensor:
        """Diagonal of the operator, as a matrix of shape (g, a)."""
        inputs = torch.stack([each.sum(0) for each in (self.left.T * self.right).split(self.ranks)])
        return self.outputs.diagonal(dim1=1, dim2=2).T @ inputs + self.rest.diagonal()[:, None]


@dataclass(frozen=True)
class ShiftedLowRank:
    """The matrix rho I + L R.

    Args:
        left: L, shape (n, r).
        right: R, shape (r, n).
        shift: rho.
    """

    left: Tensor
    right: Tensor
    shift: float


def shortened(total: KroneckerSum) -> KroneckerSum | LowRankSum:
    """Write a sum with low-rank input factors if that pays, up to rounding; otherwise leave it as it is.

    A client takes g a (g + a) multiplications with `KroneckerSum`, and g r (2 a + g) with `LowRankSum`.
    """
    rows, columns = total.outputs.shape[1], total.inputs.shape[1]
    most = int(WORTH * columns * (rows + columns) / (2 * columns + rows))
    found = []
    for factor in total.inputs.split(columns):
        one = low_rank(factor, most=most)
        if one is None:
            return total
        found.append(one)
    left, right = torch.cat([one.left for one in found], dim=1), torch.cat([one.right for one in found])
    outputs = total.outputs.view(rows, -1, rows).transpose(0, 1).contiguous()
    rest = torch.tensordot(outputs.new_tensor([one.shift for one in found]), outputs, dims=1)
    return LowRankSum(left, right, tuple(len(one.right) for one in found), outputs, rest)


def low_rank(matrix: Tensor, *, most: int) -> ShiftedLowRank | None:
    """Factor a matrix of shape (n, n) as rho I + L R, or give None if its rank is too high.

    A symmetric positive semi-definite matrix has a pivoted Cholesky factor. For any other, L spans the range of its
    products with random vectors (Halko et al. 2011). |matrix - rho I - L R| is at most `TOLERANCE` |matrix|. For a
    symmetric matrix rho may stand for all directions that it does not keep; otherwise it is 0.

    Args:
        most: largest useful rank.
    """
    exact = matrix.to(torch.float64, copy=True)
    allowed = TOLERANCE * float(torch.linalg.matrix_norm(exact))
    checks = _normal(len(exact), _CHECKS, like=exact)
    symmetric = bool((matrix - matrix.T).abs().max() <= allowed / len(exact))
    shift = _smallest(exact) if symmetric else 0.0
    exact.diagonal().sub_(shift)
    for directions in (_of_cholesky if symmetric else _of_products)(exact, most, allowed):
        left, right = directions, directions.T @ exact
        error = exact @ checks - left @ (right @ checks)
        # For a standard normal z, |M z|^2 has the mean |M|^2.
        if error.norm() <= allowed * _CHECKS**0.5:
            return ShiftedLowRank(left.to(matrix), right.to(matrix), shift)
    return None


def _smallest(matrix: Tensor) -> float:
    """Smallest eigenvalue of a symmetric positive definite matrix, by inverse iteration; 0 for any other."""
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if failed:
        return 0.0
    vector = _normal(len(matrix), 1, like=matrix)
    for _ in range(_ITERATIONS):
        vector = torch.cholesky_solve(vector / vector.norm(), factor)
    return float((vector * (matrix @ vector)).sum() / vector.square().sum())


def _of_cholesky(matrix: Tensor, most: int, allowed: float) -> Iterator[Tensor]:
    """Orthonormal bases, of up to `most` columns, of a positive semi-definite matrix's range; the smaller one first.

    The diagonal of what is left out is at most the tolerance. So its norm is at most n times the tolerance, and about
    sqrt(n) times if it has no preferred direction, like rounding errors.
    """
    for tolerance in (allowed / len(matrix) ** 0.5, allowed / len(matrix)):
        factor = pivoted_cholesky(matrix.cpu().numpy(), tolerance=tolerance)
        if factor.shape[1] > most:
            return
        # The basis is orthonormal, because the factor's own product would multiply the pivots' rounding errors.
        yield torch.linalg.qr(torch.from_numpy(factor).to(matrix)).Q


def _of_products(matrix: Tensor, most: int, allowed: float) -> Iterator[Tensor]:
    """Orthonormal bases, of up to `most` columns, of the range of random products, without what may be left out."""
    # Few products find few directions, and most factors have either few or too many.
    for size in (most // 2, most):
        basis = torch.linalg.qr(matrix @ _normal(len(matrix), size, like=matrix)).Q
        inside = basis.T @ matrix
        squares, turned = torch.linalg.eigh(inside @ inside.T)
        yield basis @ turned[:, squares.clamp(min=0).cumsum(0) > allowed**2]


def _normal(rows: int, columns: int, *, like: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(_SEED)
    return torch.randn(rows, columns, generator=generator, dtype=like.dtype).to(like.device)
