"""The quadratic programme that weights clients in a common direction of descent."""

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# Gradients differ by less in what is known of a Gram matrix of single-precision weights; pairs of weights, moved one
# after another, come nearer only slowly where the matrix has few directions.
_TOLERANCE = 1e-8
_PAIRS = 100_000


def minimise_on_simplex(gram: Matrix, cap: float) -> Vector:
    """Minimise a^T A a / 2 over 0 <= a_i <= C with sum_i a_i = 1 (MA-Echo, equation 6; a one-class SVM).

    Sequential minimal optimisation: weight moves from one entry to another, as much as lowers the objective most,
    between the pair that gains most to second order (Fan, Chen and Lin 2005), until the gradient is the same in all
    entries that are free to move. It starts from equal weights, which stay where the matrix tells nothing.

    Args:
        gram: A, symmetric and positive semi-definite, shape (n, n).
        cap: C, at least 1 / n.

    Returns:
        a, shape (n,).

    Raises:
        ArithmeticError: the gradient does not settle, as where A is not positive semi-definite.
    """
    count, diagonal = len(gram), gram.diagonal()
    scale = float(diagonal.max())
    weights = np.full(count, 1 / count)
    if scale <= 0:
        return weights
    smallest = np.finfo(np.float64).eps * scale
    gradient = gram @ weights
    for _ in range(_PAIRS):
        taker = int(np.argmin(np.where(weights < cap, gradient, np.inf)))
        gap = np.where(weights > 0, gradient - gradient[taker], 0.0)
        if gap.max() <= _TOLERANCE * scale or weights[taker] >= cap:
            return weights
        curvature = np.maximum(diagonal[taker] + diagonal - 2 * gram[taker], smallest)
        giver = int(np.argmax(np.where(gap > 0, np.square(gap) / curvature, 0.0)))
        room = min(cap - weights[taker], weights[giver])
        step = min(gap[giver] / curvature[giver], room)
        # To the last bit at a bound, so that an entry that is full or empty counts as such.
        weights[taker] = cap if step == cap - weights[taker] else weights[taker] + step
        weights[giver] -= step
        gradient += step * (gram[taker] - gram[giver])
    raise ArithmeticError(f"the weights of {count} clients do not settle in {_PAIRS} steps")
