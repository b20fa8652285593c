"""The minimiser nearest to the mean of the clients: in closed form, and by conjugate gradients."""

from collections.abc import Iterator

import torch
from torch import Tensor

from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.solvers.blocks import Block, DenseBlock, DiagonalBlock
from fedfisher_core.methods.solvers.quadratic import Quadratic
from fedfisher_core.methods.solvers.solution import Score, Selection, Solution, check_positive


def closed_form(quadratic: Quadratic) -> Solution:
    """Minimise by mean + A^+ (b - A mean), A = sum_i p_i F_i and A^+ its pseudo-inverse.

    For diagonal Fishers this is sum_i p_i F_i w_i / sum_i p_i F_i, and the mean where the denominator is 0; these
    quotients are averages of the clients down to denominators of 1e-38. For full Fishers, eigenvalues up to the
    precision of their type times their dimension, as a fraction of the largest, count as 0.

    Raises:
        InputError: the Fishers are Kronecker-factored.
    """
    vectors = []
    for block, mean, residual in zip(
        quadratic.blocks, quadratic.start, quadratic.residual(quadratic.start), strict=True
    ):
        if isinstance(block, DiagonalBlock):
            vectors.append(mean + _solve_diagonal(block.total, residual))
        elif isinstance(block, DenseBlock):
            vectors.append(mean + _solve_dense(block.total, residual))
        else:
            raise InputError(f"closed_form can't solve a {type(block).__name__}; allowed: diagonal and full Fishers")
    selection = Selection(quadratic, None)
    selection.measure(0, vectors)
    return selection.solution(0)


def _solve_diagonal(total: Tensor, residual: Tensor) -> Tensor:
    kept = total > 0
    return torch.where(kept, residual / total.where(kept, 1), 0)


def _solve_dense(total: Tensor, residual: Tensor) -> Tensor:
    precision = torch.finfo(residual.dtype).eps * len(residual)
    eigenvalues, vectors = torch.linalg.eigh(total.double())
    kept = eigenvalues > precision * eigenvalues[-1]
    basis = vectors[:, kept]
    return (basis @ ((basis.T @ residual.double()) / eigenvalues[kept])).to(residual.dtype)


def conjugate_gradients(
    quadratic: Quadratic,
    *,
    steps: int = 100,
    tolerance: float = 1e-5,
    damping: float = 0.0,
    check_every: int = 10,
    score: Score | None = None,
) -> Solution:
    """Minimise f(w) + sum over matrices of lambda |w - mean|^2 by conjugate gradients, one run a matrix.

    Few steps regularise: they leave the mean in directions of large Fisher first. The Fishers must be symmetric. A
    matrix whose block turns out to be indefinite keeps the iterate at which it does.

    Args:
        steps: most steps of each matrix.
        tolerance: a matrix stops when the norm of its residual has fallen by this factor.
        damping: lambda of a matrix as a multiple of its block's mean eigenvalue, 0 or more; the larger, the nearer the
            solution stays to the mean.
        check_every: steps between two iterates that are measured, and scored.

    Returns:
        The solution; its iterations are those of the matrix that took most, its objective is f.
    """
    check_positive(steps=steps, tolerance=tolerance, check_every=check_every)
    if not damping >= 0:
        raise InputError(f"damping is {damping}; allowed: 0 or a positive number")
    selection = Selection(quadratic, score)
    vectors = list(quadratic.start)
    runs = [
        _iterates(block, start, residual, tolerance, damping)
        for block, start, residual in zip(
            quadratic.blocks, quadratic.start, quadratic.residual(quadratic.start), strict=True
        )
    ]
    iteration = 0
    while iteration < steps:
        iterates = [next(run, None) for run in runs]
        if all(iterate is None for iterate in iterates):
            break
        vectors = [old if new is None else new for old, new in zip(vectors, iterates, strict=True)]
        iteration += 1
        if iteration % check_every == 0:
            selection.measure(iteration, vectors)
    if iteration == 0 or iteration % check_every:
        selection.measure(iteration, vectors)
    return selection.solution(iteration)


def _iterates(block: Block, start: Tensor, residual: Tensor, tolerance: float, damping: float) -> Iterator[Tensor]:
    """Run until all parts of the block have stopped; a part that has stopped no longer moves."""
    shift = (damping * block.mean_eigenvalue()).to(start.dtype) if damping else None
    vector, direction = start, residual
    square = _dots(block, residual, residual)
    target = tolerance**2 * square
    largest = torch.zeros_like(square)
    running = square > target
    while running.any():
        product = block.product(direction)
        if shift is not None:
            product = product + shift * direction
        curvature = _dots(block, direction, product)
        quotient = curvature / _dots(block, direction, direction)
        largest = torch.maximum(largest, quotient)
        # A direction this flat is rounding in the null space; a step along it would be arbitrarily long.
        running = running & ~(quotient <= torch.finfo(start.dtype).eps * largest)
        if not running.any():
            return
        length = torch.where(running, square / curvature, 0).to(start.dtype)
        vector = vector + length * direction
        residual = residual - length * product
        yield vector
        before, square = square, _dots(block, residual, residual)
        direction = residual + torch.where(running, square / before, 0).to(start.dtype) * direction
        running = running & (square > target)


def _dots(block: Block, left: Tensor, right: Tensor) -> Tensor:
    """Inner products of the block's parts, in double precision, in a shape that broadcasts against its vectors."""
    coupled = tuple(range(block.parts, left.dim()))
    return (left.double() * right.double()).sum(dim=coupled, keepdim=True)
