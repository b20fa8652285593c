"""Gradient descent on the mean square of a linear system's residual: many steps at the cost of a few products."""

from collections.abc import Callable

import torch
from torch import Tensor

from fedfisher_core.solvers.quadratic import dot
from fedfisher_core.solvers.solution import check_positive

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
    """Take the last iterate of w <- w - rate grad(mean((K w - z)^2)), for a symmetric K.

    With s = 2 rate / entries and r = z - K w_0, the iterate after k steps is w_0 + h(K) r, where
    h(x) = (1 - (1 - s x^2)^k) / x is a polynomial. The Lanczos process gives K as a tridiagonal T on the Krylov space
    of r, in a basis Q, and h(K) r = |r| Q h(T) e_1 as soon as further directions do not matter. That takes one product
    a direction where the steps take two each, and far fewer directions, as slow descent hardly leaves the space that
    the largest eigenvalues span. A rate that is too large makes both diverge, beyond all numbers with enough steps.

    Args:
        product: multiplies a tensor of the shape of `start` by K.
        start: w_0.
        target: z, of the same shape.
        steps: k.
        rate: of the descent.

    Returns:
        w_k, in the precision of the start.

    Raises:
        InputError: a setting is not positive.
    """
    check_positive(steps=steps, rate=rate)
    residual = target - product(start)
    length = float(torch.linalg.vector_norm(residual))
    if length == 0:
        return start
    basis = [residual / length]
    diagonal: list[float] = []
    beside: list[float] = []
    # h has degree 2 k - 1, and a space that holds everything needs no more directions.
    most = min(2 * steps, start.numel())
    while True:
        direction = product(basis[-1])
        diagonal.append(dot(basis[-1], direction))
        # Against all directions so far: rounding would bring back those that have converged.
        for one in basis:
            direction = direction - dot(one, direction) * one
        coefficients = _coefficients(diagonal, beside, steps, 2 * rate / start.numel())
        left = float(torch.linalg.vector_norm(direction))
        small = coefficients[-2:].abs().max() <= _TOLERANCE * torch.linalg.vector_norm(coefficients)
        exhausted = left <= torch.finfo(start.dtype).eps * max(map(abs, diagonal))
        diverged = not torch.isfinite(coefficients).all()
        if len(basis) == most or exhausted or diverged or (len(basis) > 1 and small):
            break
        beside.append(left)
        basis.append(direction / left)
    change = sum(
        (float(part) * one for part, one in zip(coefficients, basis, strict=True)), start=torch.zeros_like(start)
    )
    return start + length * change


def _coefficients(diagonal: list[float], beside: list[float], steps: int, scale: float) -> Tensor:
    """h(T) e_1, from the eigenvalues of T."""
    tridiagonal = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    if beside:
        sides = torch.tensor(beside, dtype=torch.float64)
        tridiagonal += torch.diag(sides, 1) + torch.diag(sides, -1)
    values, vectors = torch.linalg.eigh(tridiagonal)
    shrink = scale * values.square()
    # 1 - (1 - x)^k without the rounding of 1 - x where x is small.
    slow = -torch.expm1(steps * torch.log1p(-shrink.clamp(max=0.5)))
    grown = torch.where(shrink < 0.5, slow, 1 - (1 - shrink) ** steps)
    return vectors @ (torch.where(values == 0, 0, grown / values) * vectors[0])
