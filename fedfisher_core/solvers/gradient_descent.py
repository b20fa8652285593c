"""Plain gradient descent, which finds the minimiser nearest to the mean of the clients (Lemma 1)."""

import math

from fedfisher_core.solvers.quadratic import Quadratic, dot
from fedfisher_core.solvers.solution import Score, Selection, Solution, check_positive

POWER_ITERATIONS = 1000
POWER_TOLERANCE = 1e-4


def largest_eigenvalue(quadratic: Quadratic) -> float:
    """Estimate the largest eigenvalue of sum_i p_i F_i that gradient descent from the mean can meet.

    Power iteration from the first residual: directions absent from it stay absent from every iterate.

    Args:
        quadratic: the objective.

    Returns:
        A Rayleigh quotient, at most the eigenvalue; 0 if the mean is a minimiser already.
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

    An estimate of lambda_max that is too small does no harm up to a factor of 2. The first residual may have next to
    nothing of the largest direction, and a smaller estimate is raised by what the steps show.

    Args:
        quadratic: the objective.
        steps: largest number of steps.
        tolerance: it stops when the norm of the residual b - A w has fallen by this factor.
        check_every: after every so many steps the iterate is measured, and scored.
        score: selects the returned iterate; without it, the last one is returned.

    Returns:
        The solution.

    Raises:
        InputError: a setting is not positive.
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
        # A r = lambda (r - r') after a step of r / lambda: a Rayleigh quotient without a product of its own.
        eigenvalue *= max(1.0, 1 - sum(map(dot, before, residuals)) / square)
        square = sum(dot(residual, residual) for residual in residuals)
        iteration += 1
        if iteration % check_every == 0:
            selection.measure(iteration, vectors)
    if iteration == 0 or iteration % check_every:
        selection.measure(iteration, vectors)
    return selection.solution(iteration)
