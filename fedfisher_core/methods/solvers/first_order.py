"""Minimisers by gradients: Adam, plain gradient descent (Lemma 1), and descent on a squared residual."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from fedfisher_core.methods.solvers.quadratic import Quadratic, dot
from fedfisher_core.methods.solvers.solution import Score, Selection, Solution, check_positive


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
        longest: a longer gradient, of all blocks together, is scaled down to this length.
        check_every: iterates 1, 1 + check_every, 1 + 2 check_every, ... and the last are scored.
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


POWER_ITERATIONS = 1000
POWER_TOLERANCE = 1e-4


def largest_eigenvalue(quadratic: Quadratic) -> float:
    """Estimate the largest eigenvalue of sum_i p_i F_i that gradient descent from the mean can meet.

    Power iteration starts from the first residual: directions absent from it stay absent from every iterate. The
    estimate is a Rayleigh quotient, at most the eigenvalue, and 0 if the mean is a minimiser already.
    """
    vectors = quadratic.residual(quadratic.start)
    eigenvalue = 0.0
    for _ in range(POWER_ITERATIONS):
        norm = math.sqrt(sum(dot(vector, vector) for vector in vectors))
        if norm == 0.0:
            return 0.0
        vectors = tuple(vector / norm for vector in vectors)
        products = quadratic.product(vectors)
        before, eigenvalue = eigenvalue, sum(map(dot, vectors, products))
        if eigenvalue - before <= POWER_TOLERANCE * eigenvalue:
            break
        vectors = products
    return eigenvalue


def gradient_descent(
    quadratic: Quadratic,
    *,
    steps: int = 10_000,
    tolerance: float = 1e-6,
    check_every: int = 100,
    score: Score | None = None,
) -> Solution:
    """Minimise by w <- w - (A w - b) / lambda_max, A = sum_i p_i F_i, from the mean of the clients.

    An estimate of lambda_max that is too small by up to a factor of 2 does no harm. The first residual may have next to
    nothing of the largest direction; then the estimate is smaller still, and is raised by what the steps show.

    Args:
        steps: most steps.
        tolerance: it stops when the norm of the residual b - A w has fallen by this factor.
        check_every: steps between two iterates that are measured, and scored.
    """
    check_positive(steps=steps, tolerance=tolerance, check_every=check_every)
    selection = Selection(quadratic, score)
    vectors = quadratic.start
    residuals = quadratic.residual(vectors)
    eigenvalue = largest_eigenvalue(quadratic)
    square = sum(dot(residual, residual) for residual in residuals)
    iteration, target = 0, tolerance**2 * square
    while eigenvalue > 0 and iteration < steps and square > target:
        vectors = tuple(v + r / eigenvalue for v, r in zip(vectors, residuals, strict=True))
        before, residuals = residuals, quadratic.residual(vectors)
        # A r = lambda (r - r') after a step of r / lambda: a Rayleigh quotient without a further product.
        eigenvalue *= max(1.0, 1 - sum(map(dot, before, residuals)) / square)
        square = sum(dot(residual, residual) for residual in residuals)
        iteration += 1
        if iteration % check_every == 0:
            selection.measure(iteration, vectors)
    if iteration == 0 or iteration % check_every:
        selection.measure(iteration, vectors)
    return selection.solution(iteration)


_TOLERANCE = 1e-9
"""Directions are added until the last two have less than this part of the change."""


def normal_descent(
    product: Callable[[Tensor], Tensor],
    start: Tensor,
    target: Tensor,
    *,
    steps: int,
    rate: float,
) -> Tensor:
    """Take the iterate w_k of w <- w - rate grad(mean((K w - z)^2)), for a symmetric K and k = `steps`.

    With s = 2 rate / entries and r = z - K w_0, the iterate after k steps is w_0 + h(K) r, where
    h(x) = (1 - (1 - s x^2)^k) / x is a polynomial. The Lanczos process gives K as a tridiagonal T on the Krylov space
    of r, in a basis Q. As soon as further directions do not matter, h(K) r = |r| Q h(T) e_1. This takes one product
    a direction, where descent takes two a step. It needs far fewer directions than steps, as slow descent hardly leaves
    the space that the largest eigenvalues span. A rate that is too large makes both diverge, beyond all numbers with
    enough steps.

    Args:
        product: multiplies a tensor of the shape of `start` by K.
        start: w_0, in whose precision w_k is.
        target: z, of the same shape.
    """
    check_positive(steps=steps, rate=rate)
    residual = target - product(start)
    length = float(torch.linalg.vector_norm(residual))
    if length == 0:
        return start
    basis = [residual / length]
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    # h has degree 2 k - 1, and the whole space has no more directions.
    most = min(2 * steps, start.numel())
    while True:
        direction = product(basis[-1])
        diagonal.append(dot(basis[-1], direction))
        # Orthogonal to all directions so far: rounding would bring back those that have converged.
        for one in basis:
            direction = direction - dot(one, direction) * one
        coefficients = _coefficients(diagonal, off_diagonal, steps, 2 * rate / start.numel())
        left = float(torch.linalg.vector_norm(direction))
        small = coefficients[-2:].abs().max() <= _TOLERANCE * torch.linalg.vector_norm(coefficients)
        exhausted = left <= torch.finfo(start.dtype).eps * max(map(abs, diagonal))
        diverged = not torch.isfinite(coefficients).all()
        if len(basis) == most or exhausted or diverged or (len(basis) > 1 and small):
            break
        off_diagonal.append(left)
        basis.append(direction / left)
    change = sum(
        (float(part) * one for part, one in zip(coefficients, basis, strict=True)), start=torch.zeros_like(start)
    )
    return start + length * change


def _coefficients(diagonal: list[float], off_diagonal: list[float], steps: int, scale: float) -> Tensor:
    """h(T) e_1, from the eigenvalues of T."""
    tridiagonal = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    if off_diagonal:
        sides = torch.tensor(off_diagonal, dtype=torch.float64)
        tridiagonal += torch.diag(sides, 1) + torch.diag(sides, -1)
    values, vectors = torch.linalg.eigh(tridiagonal)
    shrink = scale * values.square()
    # 1 - (1 - x)^k without the rounding of 1 - x where x is small.
    slow = -torch.expm1(steps * torch.log1p(-shrink.clamp(max=0.5)))
    grown = torch.where(shrink < 0.5, slow, 1 - (1 - shrink) ** steps)
    return vectors @ (torch.where(values == 0, 0, grown / values) * vectors[0])
