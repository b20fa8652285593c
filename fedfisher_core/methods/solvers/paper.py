"""The optimiser with which the authors of FedFisher minimise the objective (Appendix D.3 and their code).

It resembles Adam but sums instead of averaging: no factors 1 - beta, no correction of bias. The two variants add
epsilon at different steps of the formula, which shows in the iterates.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fedfisher_core.methods.solvers.quadratic import Quadratic
from fedfisher_core.methods.solvers.solution import Score, Selection, Solution, check_positive

LEARNING_RATE = 0.01
MOMENTUM = 0.9
DECAY = 0.99
EPSILON = 0.01


def paper_diagonal(
    quadratic: Quadratic, *, steps: int = 2000, check_every: int = 100, score: Score | None = None
) -> Solution:
    """Minimise as the authors do for diagonal Fishers: w <- w - 0.01 m / (sqrt(s) + 0.01).

    With g = A w - b: m <- 0.9 m + g and s <- 0.99 s + g^2, from the mean of the clients. Iterates 1, 1 + check_every,
    1 + 2 check_every, ... are scored.
    """
    return _optimise(quadratic, lambda squares: squares.sqrt().add_(EPSILON), steps, check_every, score)


def paper_kronecker(
    quadratic: Quadratic, *, steps: int = 2000, check_every: int = 100, score: Score | None = None
) -> Solution:
    """Minimise as the authors do for Kronecker factors: w <- w - 0.01 m / sqrt(s + 0.01), see `paper_diagonal`."""
    return _optimise(quadratic, lambda squares: (squares + EPSILON).sqrt_(), steps, check_every, score)


def _optimise(
    quadratic: Quadratic,
    denominator: Callable[[Tensor], Tensor],
    steps: int,
    check_every: int,
    score: Score | None,
) -> Solution:
    check_positive(steps=steps, check_every=check_every)
    selection = Selection(quadratic, score)
    vectors = [vector.clone() for vector in quadratic.start]
    sums = [torch.zeros_like(vector) for vector in vectors]
    squares = [torch.zeros_like(vector) for vector in vectors]
    for step in range(steps):
        for vector, residual, total, square in zip(vectors, quadratic.residual(vectors), sums, squares, strict=True):
            gradient = -residual
            total.mul_(MOMENTUM).add_(gradient)
            square.mul_(DECAY).addcmul_(gradient, gradient)
            vector.addcdiv_(total, denominator(square), value=-LEARNING_RATE)
        last_unscored = score is None and step == steps - 1
        if step % check_every == 0 or last_unscored:
            selection.measure(step + 1, vectors)
    return selection.solution(steps)
