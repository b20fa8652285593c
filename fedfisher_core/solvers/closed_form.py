"""The minimiser nearest to the mean of the clients in closed form, for diagonal and full Fishers."""

import torch
from torch import Tensor

from fedfisher_core.errors import InputError
from fedfisher_core.solvers.blocks import DenseBlock, DiagonalBlock
from fedfisher_core.solvers.quadratic import Quadratic
from fedfisher_core.solvers.solution import Selection, Solution


def closed_form(quadratic: Quadratic, *, cutoff: float | None = None) -> Solution:
    """Minimise by mean + A^+ (b - A mean), A = sum_i p_i F_i and A^+ its pseudo-inverse.

    For diagonal Fishers this is sum_i p_i F_i w_i / sum_i p_i F_i, and the mean where the denominator is 0.

    Args:
        quadratic: the objective, with diagonal or full Fishers.
        cutoff: eigenvalues of a block (one parameter, or all with full Fishers) up to this fraction of the
            largest count as 0. By default 0 for diagonal Fishers, whose quotients are averages of the
            clients however small the eigenvalue; for full ones the precision of their type times their
            dimension.

    Returns:
        The solution, after 0 iterations.

    Raises:
        InputError: the Fishers are Kronecker-factored, or the cutoff is not in [0, 1).
    """
    if cutoff is not None and not 0 <= cutoff < 1:
        raise InputError(f"cutoff is {cutoff}; allowed: at least 0 and below 1")
    vectors = []
    for block, mean, residual in zip(
        quadratic.blocks, quadratic.start, quadratic.residual(quadratic.start), strict=True
    ):
        if isinstance(block, DiagonalBlock):
            vectors.append(mean + _solve_diagonal(block.total, residual, cutoff or 0.0))
        elif isinstance(block, DenseBlock):
            precision = torch.finfo(mean.dtype).eps * len(mean)
            vectors.append(mean + _solve_dense(block.total, residual, precision if cutoff is None else cutoff))
        else:
            raise InputError(f"closed_form can't solve a {type(block).__name__}; allowed: diagonal and full Fishers")
    selection = Selection(quadratic, None)
    selection.measure(0, vectors)
    return selection.solution(0)


def _solve_diagonal(total: Tensor, residual: Tensor, cutoff: float) -> Tensor:
    kept = total > cutoff * total.max()
    return torch.where(kept, residual / total.where(kept, 1), 0)


def _solve_dense(total: Tensor, residual: Tensor, cutoff: float) -> Tensor:
    eigenvalues, vectors = torch.linalg.eigh(total.double())
    kept = eigenvalues > cutoff * eigenvalues[-1]
    basis = vectors[:, kept]
    return (basis @ ((basis.T @ residual.double()) / eigenvalues[kept])).to(residual.dtype)
