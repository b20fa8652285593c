"""Conjugate gradients, which find the minimiser nearest to the mean of the clients in few products.

From the mean, iterates stay in mean + range(A), A = sum_i p_i F_i, and b lies in the range of A: the limit is
that of gradient descent (Lemma 1). A preconditioner would leave that space, so there is none.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from fedfisher_core.errors import InputError
from fedfisher_core.solvers.blocks import Block
from fedfisher_core.solvers.quadratic import Quadratic
from fedfisher_core.solvers.solution import Score, Selection, Solution, check_positive


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

    Few steps act as a regulariser: they leave the mean in directions of large Fisher first.

    Args:
        quadratic: the objective; its Fishers are symmetric. A matrix whose block turns out to be indefinite keeps the
            iterate at which it does.
        steps: largest number of steps of each matrix.
        tolerance: a matrix stops when the norm of its residual has fallen by this factor.
        damping: lambda of a matrix as a multiple of its block's mean eigenvalue; the larger, the nearer the solution
            stays to the mean.
        check_every: after every so many steps the iterate is measured, and scored.
        score: selects the returned iterate; without it, the last one is returned.

    Returns:
        The solution; its iterations are those of the matrix that took most, its objective is f.

    Raises:
        InputError: a setting is not positive, or the damping is negative.
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
    """Run until no part of the block goes on; a part that has stopped stays where it is."""
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
    """Inner products of the block's parts, in double precision, in a shape that meets its vectors."""
    coupled = tuple(range(block.parts, left.dim()))
    return (left.double() * right.double()).sum(dim=coupled, keepdim=True)
