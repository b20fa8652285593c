"""Sums of Kronecker blocks whose input factors have few directions: of few examples, or cut by a budget."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedfisher_core.fisher.kronecker import KroneckerSum

TOLERANCE = 1e-6
"""Part of a factor's Frobenius norm that may be left out; a product in single precision rounds as coarsely."""

WORTH = 0.8
"""The part of the multiplications that has to do for the finding of the directions to pay."""

_CHECKS = 8
_SEED = 0


@dataclass(frozen=True)
class LowRankSum:
    """A `KroneckerSum` with A_i = L_i R_i, which multiplies by the r columns of L_i in place of all of A_i.

    Args:
        left: the L_i side by side, client by client, shape (a, clients r).
        right: the R_i below one another, shape (clients r, a).
        outputs: p_i G_i, shape (clients, g, g).
    """

    left: Tensor
    right: Tensor
    outputs: Tensor

    def product(self, matrix: Tensor) -> Tensor:
        """Multiply the operator by a vector; see `KroneckerSum.product`."""
        clients, rows, _ = self.outputs.shape
        along = (matrix @ self.left).view(rows, clients, -1).transpose(0, 1)
        return (self.outputs @ along).transpose(0, 1).reshape(rows, -1) @ self.right

    def diagonal(self) -> Tensor:
        """Diagonal of the operator, as a matrix of shape (g, a)."""
        clients, columns = len(self.outputs), len(self.left)
        inputs = (self.left.T * self.right).view(clients, -1, columns).sum(1)
        return self.outputs.diagonal(dim1=1, dim2=2).T @ inputs


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
    pairs = []
    for factor in total.inputs.split(columns):
        pair = low_rank(factor, most=most)
        if pair is None:
            return total
        pairs.append(pair)
    rank = max(len(right) for _, right in pairs)
    left, right = total.inputs.new_zeros(columns, len(pairs), rank), total.inputs.new_zeros(len(pairs), rank, columns)
    for client, (tall, wide) in enumerate(pairs):
        left[:, client, : len(wide)], right[client, : len(wide)] = tall, wide
    outputs = total.outputs.view(rows, -1, rows).transpose(0, 1).contiguous()
    return LowRankSum(left.flatten(1), right.flatten(0, 1), outputs)


def low_rank(matrix: Tensor, *, most: int) -> tuple[Tensor, Tensor] | None:
    """Factor a matrix of few directions by the range of its products with random vectors (Halko et al. 2011).

    Args:
        matrix: shape (n, n).
        most: largest rank that is of use.

    Returns:
        L and R, shapes (n, r) and (r, n) with the smallest r <= `most` for which |matrix - L R| is no larger than
        `TOLERANCE` |matrix|, in the type of the matrix; None where there is no such r.
    """
    exact = matrix.double()
    # Few directions are found with few products, and most factors have either few or too many.
    for size in (most // 2, most):
        basis = _range(exact, size)
        if basis is not None:
            inside = basis.T @ exact
            squares, turned = torch.linalg.eigh(inside @ inside.T)
            left_out = squares.clamp(min=0).cumsum(0) <= TOLERANCE**2 * squares.sum()
            directions = basis @ turned[:, ~left_out]
            return directions.to(matrix), (directions.T @ exact).to(matrix)
    return None


def _range(matrix: Tensor, size: int) -> Tensor | None:
    """Orthonormal columns, `size` of them, that hold the range of a matrix; None where there are none."""
    generator = torch.Generator().manual_seed(_SEED)
    drawn = torch.randn(len(matrix), size + _CHECKS, generator=generator, dtype=torch.float64).to(matrix.device)
    seen, checks = (matrix @ drawn).split([size, _CHECKS], dim=1)
    basis = torch.linalg.qr(seen).Q
    # For a standard normal z, |M z|^2 has the mean |M|^2.
    left = checks - basis @ (basis.T @ checks)
    return basis if left.norm() <= TOLERANCE * checks.norm() else None
