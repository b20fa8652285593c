"""Sums of Kronecker blocks whose input factors have few directions: of few examples, or cut by a budget.

A budget that keeps the foremost directions may leave one number for all others: a multiple of the identity.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfisher_core.fisher.kronecker import KroneckerSum
from fedfisher_core.pivoted_cholesky import pivoted_cholesky

TOLERANCE = 1e-6
"""Part of a factor's Frobenius norm that may be left out; a product in single precision rounds as coarsely."""

WORTH = 0.8
"""The part of the multiplications that has to do for the finding of the directions to pay."""

_CHECKS = 8
_SEED = 0
# Steps of inverse iteration; the number that stands for the directions which were not kept is far below the others'.
_ITERATIONS = 4


@dataclass(frozen=True)
class LowRankSum:
    """A `KroneckerSum` with A_i = rho_i I + L_i R_i: it multiplies by the r_i columns of L_i in place of all of A_i.

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
    """Write a sum in the few directions of its input factors, where all of them have few enough for that to pay.

    With `KroneckerSum` a client takes g a (g + a) multiplications, with `LowRankSum` g r (2 a + g).

    Args:
        total: the sum.

    Returns:
        The same operator up to rounding.
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
    """Factor a matrix of few directions.

    A symmetric positive semi-definite one has a pivoted Cholesky factor, any other the range of its products with
    random vectors (Halko et al. 2011).

    Args:
        matrix: shape (n, n).
        most: largest rank that is of use.

    Returns:
        rho, L and R of a rank r <= `most` for which |matrix - rho I - L R| is no larger than `TOLERANCE` |matrix|, in
        the type of the matrix, where rho is 0 or what stands for all directions that a symmetric matrix does not
        keep; None where none was found.
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
    """Smallest eigenvalue of a symmetric positive definite matrix, by inverse iteration; 0 of all others."""
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if failed:
        return 0.0
    vector = _normal(len(matrix), 1, like=matrix)
    for _ in range(_ITERATIONS):
        vector = torch.cholesky_solve(vector / vector.norm(), factor)
    return float((vector * (matrix @ vector)).sum() / vector.square().sum())


def _of_cholesky(matrix: Tensor, most: int, allowed: float) -> Iterator[Tensor]:
    """Orthonormal columns, up to `most`, that hold the range of a positive semi-definite matrix, the fewer first.

    What is left out has a diagonal up to the tolerance, so that its norm is at most n times that, and about sqrt(n)
    times where it has no direction of its own, as rounding has none.
    """
    for tolerance in (allowed / len(matrix) ** 0.5, allowed / len(matrix)):
        factor = pivoted_cholesky(matrix.cpu().numpy(), tolerance=tolerance)
        if factor.shape[1] > most:
            return
        # The factor's own product has the rounding of the pivots in it, many times over.
        yield torch.linalg.qr(torch.from_numpy(factor).to(matrix)).Q


def _of_products(matrix: Tensor, most: int, allowed: float) -> Iterator[Tensor]:
    """Orthonormal columns, up to `most`, that hold the range of some products, less what may be left out."""
    # Few directions are found with few products, and most factors have either few or too many.
    for size in (most // 2, most):
        basis = torch.linalg.qr(matrix @ _normal(len(matrix), size, like=matrix)).Q
        inside = basis.T @ matrix
        squares, turned = torch.linalg.eigh(inside @ inside.T)
        yield basis @ turned[:, squares.clamp(min=0).cumsum(0) > allowed**2]


def _normal(rows: int, columns: int, *, like: Tensor) -> Tensor:
    """Standard normal numbers, the same on every device."""
    generator = torch.Generator().manual_seed(_SEED)
    return torch.randn(rows, columns, generator=generator, dtype=like.dtype).to(like.device)
