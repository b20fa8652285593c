"""The two-layer network f(x) = m^(-1/2) sum_r a_r relu(x . w_r), whose second layer is fixed (Section 3).

Weights have shape (..., m, p) and inputs (..., n, p), with m hidden units, p dimensions and n samples; the
leading dimensions, such as one for clients, are broadcast.
"""

import math
from collections.abc import Iterator, Sequence

from torch import Tensor


def predict(weights: Tensor, signs: Tensor, inputs: Tensor) -> Tensor:
    """Evaluate the network.

    Args:
        weights: w_r, shape (..., m, p).
        signs: a_r, each 1 or -1, shape (m,).
        inputs: shape (..., n, p).

    Returns:
        f(x), shape (..., n).
    """
    return (inputs @ weights.mT).relu() @ signs / math.sqrt(len(signs))


def active_units(weights: Tensor, inputs: Tensor) -> Tensor:
    """Tell which hidden units each input switches on: 1 where x . w_r > 0, else 0, shape (..., n, m)."""
    return (inputs @ weights.mT > 0).to(weights.dtype)


def combine_gradients(coefficients: Tensor, active: Tensor, signs: Tensor, inputs: Tensor) -> Tensor:
    """Sum the gradients of the network over samples: sum_k c_k df(x_k)/dw, that is J^T c.

    Args:
        coefficients: c, shape (..., n).
        active: the switched-on units at the weights of the gradients, shape (..., n, m).
        signs: shape (m,).
        inputs: shape (..., n, p).

    Returns:
        Shape (..., m, p).
    """
    scale = signs[:, None] / math.sqrt(len(signs))
    return scale * ((active * coefficients[..., None]).mT @ inputs)


def training_error(weights: Tensor, signs: Tensor, inputs: Tensor, targets: Tensor) -> float:
    """Mean of the squared loss (z - y)^2 / 2 over all samples."""
    return 0.5 * (predict(weights, signs, inputs) - targets).square().mean().item()


def local_models(
    start: Tensor,
    signs: Tensor,
    inputs: Tensor,
    targets: Tensor,
    *,
    learning_rate: float,
    steps: Sequence[int],
) -> Iterator[Tensor]:
    """Train one network at each client by full-batch gradient descent, all from one start (Algorithm 1).

    Args:
        start: the common initial weights, shape (m, p).
        signs: shape (m,).
        inputs: each client's, shape (clients, n, p).
        targets: shape (clients, n).
        learning_rate: eta.
        steps: numbers of steps after which to hand out the weights, increasing.

    Yields:
        The clients' weights after each of the numbers of steps, shape (clients, m, p).
    """
    scale = math.sqrt(len(signs))
    weights = start.expand(len(inputs), -1, -1).clone()
    done = 0
    for target in steps:
        for _ in range(target - done):
            hidden = inputs @ weights.mT
            active = (hidden > 0).to(weights.dtype)
            errors = (hidden * active) @ signs / scale - targets
            gradient = combine_gradients(errors / inputs.shape[1], active, signs, inputs)
            weights.sub_(gradient, alpha=learning_rate)
        done = target
        yield weights.clone()
