"""Adam with gradients of bounded length."""

import torch

from fedfisher_core.solvers.quadratic import Quadratic
from fedfisher_core.solvers.solution import Score, Selection, Solution, check_positive


def adam(
    quadratic: Quadratic,
    *,
    steps: int,
    learning_rate: float,
    longest: float,
    check_every: int,
    score: Score | None = None,
) -> Solution:
    """Minimise by Adam (Kingma and Ba 2015) from the objective's start.

    The gradient is that of f / 2, the negative logarithm of a density whose precision is A.

    Args:
        quadratic: the objective f.
        steps: number of steps.
        learning_rate: of Adam.
        longest: a longer gradient, of all blocks together, is scaled down to this length.
        check_every: iterates 1, 1 + check_every, 1 + 2 check_every, ... and the last are scored.
        score: selects the returned iterate; without it, the last one is returned.

    Returns:
        The solution.

    Raises:
        InputError: a setting is not positive.
    """
    check_positive(steps=steps, learning_rate=learning_rate, longest=longest, check_every=check_every)
    selection = Selection(quadratic, score)
    vectors = [vector.clone() for vector in quadratic.start]
    optimiser = torch.optim.Adam(vectors, lr=learning_rate)
    for step in range(steps):
        for vector, residual in zip(vectors, quadratic.residual(vectors), strict=True):
            vector.grad = -residual
        torch.nn.utils.clip_grad_norm_(vectors, max_norm=longest)
        optimiser.step()
        if step == steps - 1 or (score is not None and step % check_every == 0):
            selection.measure(step + 1, vectors)
    return selection.solution(steps)
