"""Conjugate gradients, which find the minimiser nearest to the mean of the clients in few products.

From the mean, iterates stay in mean + range(A), A = sum_i p_i F_i, and b lies in the range of A: the limit is
that of gradient descent (Lemma 1). A preconditioner would leave that space, so there is none.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from fedfisher_core.errors import InputError
from fedfisher_core.solvers.blocks import Block
from fedfisher_core.solvers.quadratic import Quadratic, dot
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
    """Minimise f(w) + sum over blocks of lambda |w - mean|^2 by conjugate gradients, one run a block.

    Few steps act as a regulariser: they leave the mean in directions of large Fisher first.

    Args:
        quadratic: the objective; its Fishers are symmetric. A block that turns out to be indefinite keeps the
            iterate at which it does.
        steps: largest number of steps of each block.
        tolerance: a block stops when the norm of its residual has fallen by this factor.
        damping: lambda of a block as a multiple of its mean eigenvalue; the larger, the nearer the solution
            stays to the mean.
        check_every: after every so many steps the iterate is measured, and scored.
        score: selects the returned iterate; without it, the last one is returned.

    Returns:
        The solution; its iterations are those of the block that took most, its objective is f.

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
    shift = damping * block.mean_eigenvalue() if damping else 0.0
    vector, direction = start, residual
    square = dot(residual, residual)
    target = tolerance**2 * square
    largest = 0.0
    while square > target:
        product = block.product(direction)
        if shift:
            product = product + shift * direction
        curvature = dot(direction, product)
        quotient = curvature / dot(direction, direction)
        largest = max(largest, quotient)
        # A direction this flat is rounding in the null space; a step along it would be arbitrarily long.
        if quotient <= torch.finfo(start.dtype).eps * largest:
            return
        length = square / curvature
        vector = vector + length * direction
        residual = residual - length * product
        yield vector
        before, square = square, dot(residual, residual)
        direction = residual + (square / before) * direction
