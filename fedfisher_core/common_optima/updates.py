"""How the global weights of one layer and the local ones move: as the paper has it, and as its code does."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfisher_core.common_optima.quadratic_programme import minimise_on_simplex

# The mean of equal clients differs from them by its rounding, which steps of fixed length must not follow.
_ROUNDING = 16

Weigh = Callable[[Tensor], Tensor]
"""From the clients' gradients, shape (clients, outputs, inputs), to their weights, shape (clients,)."""


@dataclass(frozen=True)
class Iteration:
    """The iteration of the paper.

    Args:
        steps: tau, how often everything moves.
        step_size: eta.
        penalty: mu, how firmly local models keep to their data.
        weigh: chooses alpha.
        anchored: whether local models move from where they were trained (equation 11), or from where they are
            (Algorithm 1).
        normalise: whether each row of a local model moves by eta, whatever its distance.
    """

    steps: int
    step_size: float
    penalty: float
    weigh: Weigh
    anchored: bool
    normalise: bool

    def run(self, models: Tensor, projections: Tensor, start: Tensor) -> Tensor:
        """Bring local and global weights of one layer together.

        W <- W - 2 eta sum_i alpha_i (W - V_i) P_i, then
        V_i <- V + Norm((W - V) (I - mu / (1 + mu) P_i)), where V is W_i or the V_i before.

        Args:
            models: W_i, shape (clients, outputs, inputs).
            projections: P_i onto the span of the clients' inputs, shape (clients, inputs, inputs).
            start: W, shape (outputs, inputs).

        Returns:
            W after the last step.
        """
        if self.weigh is equal_weights and self.anchored and not self.normalise:
            return self._run_by_sums(models, projections, start)
        kept = self.penalty / (1 + self.penalty)
        merged, local = start, models
        for _ in range(self.steps):
            gradients = (merged - local) @ projections
            merged = merged - 2 * self.step_size * torch.tensordot(self.weigh(gradients), gradients, 1)
            base = models if self.anchored else local
            change = merged - base
            change = change - kept * (change @ projections)
            local = base + (self.step_size * unit_rows(change, base) if self.normalise else change)
        return merged

    def _run_by_sums(self, models: Tensor, projections: Tensor, start: Tensor) -> Tensor:
        """Do the same where it is linear in W: a step takes one product, however many clients there are.

        After the first step V_i = W - c (W - W_i) P_i with c = mu / (1 + mu), so that (W - V_i) P_i is
        c (W - W_i) P_i^2.
        """
        kept, rate = self.penalty / (1 + self.penalty), 2 * self.step_size / len(models)
        gradients = (start - models) @ projections
        moved = -rate * gradients.sum(0)
        if self.steps == 1:
            return start + moved
        squares, fixed = torch.zeros_like(projections[0]), torch.zeros_like(start)
        for gradient, projection in zip(gradients, projections, strict=True):
            squares.addmm_(projection, projection)
            fixed.addmm_(gradient, projection)
        for _ in range(self.steps - 1):
            moved = moved - rate * kept * torch.addmm(fixed, moved, squares)
        return start + moved


def run_official(
    models: Tensor, complements: Tensor, start: Tensor, *, steps: int, step_size: float, normalise: bool
) -> Tensor:
    """Iterate as the authors' code does.

    W <- W - eta / N sum_i (W - V_i) (I - Q_i)^T, then V_i <- V_i + eta Norm((W - V_i) Q_i^T).

    Args:
        models: W_i, shape (clients, outputs, inputs).
        complements: Q_i, what the code has in place of I - P_i, shape (clients, inputs, inputs).
        start: W, shape (outputs, inputs).
        steps: T.
        step_size: eta.
        normalise: whether each row of a local model moves by eta, whatever its distance.

    Returns:
        The local models V_i after the last step, shape (clients, outputs, inputs).
    """
    merged, local = start, models
    transposed = complements.mT
    for _ in range(steps):
        apart = merged - local
        merged = merged - step_size * (apart - apart @ transposed).mean(0)
        change = (merged - local) @ transposed
        local = local + step_size * (unit_rows(change, local) if normalise else change)
    return local


def equal_weights(gradients: Tensor) -> Tensor:
    """The same weight for each client."""
    return gradients.new_full((len(gradients),), 1 / len(gradients))


def common_descent(cap: float) -> Weigh:
    """Weights whose sum of gradients is shortest: to go against it lowers every client's objective.

    Args:
        cap: C, the largest weight; at most 1. Where it is below 1 / N, all weights are equal.

    Returns:
        The choice of weights.
    """

    def weigh(gradients: Tensor) -> Tensor:
        rows = gradients.flatten(1).double()
        gram = (rows @ rows.T).cpu().numpy()
        return torch.from_numpy(minimise_on_simplex(gram, max(cap, 1 / len(rows)))).to(gradients)

    return weigh


def unit_rows(change: Tensor, weights: Tensor) -> Tensor:
    """Scale every row to length 1; rows that are no more than the rounding of the weights become 0.

    Args:
        change: shape (..., inputs).
        weights: what is changed, same shape.

    Returns:
        The same shape.
    """
    lengths = torch.linalg.vector_norm(change, dim=-1, keepdim=True)
    noise = _ROUNDING * torch.finfo(weights.dtype).eps * torch.linalg.vector_norm(weights, dim=-1, keepdim=True)
    return torch.where(lengths > noise, change / torch.where(lengths > noise, lengths, 1), 0)


def distance(merged: Tensor, models: Tensor, projections: Tensor) -> float:
    """Mean over clients of |(W - W_i) P_i|^2, the paper's objective (equation 3).

    Args:
        merged: W, shape (outputs, inputs).
        models: W_i, shape (clients, outputs, inputs).
        projections: P_i, shape (clients, inputs, inputs).

    Returns:
        The mean.
    """
    return float(((merged - models) @ projections).square().sum((1, 2)).mean())
