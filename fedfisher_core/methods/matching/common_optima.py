"""MA-Echo: global and local models that move towards each other where the clients' data do not see it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedfisher_core.fisher.layers import from_matrix, to_matrix
from fedfisher_core.models.spec import Parameters

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# Gradients that differ by less are equal as far as a Gram matrix of single-precision weights is known. Moving pairs of
# weights one after another converges slowly where the matrix has few directions, hence so many pairs.
_TOLERANCE = 1e-8
_PAIRS = 100_000


def minimise_on_simplex(gram: Matrix, cap: float) -> Vector:
    """Minimise a^T A a / 2 over 0 <= a_i <= C with sum_i a_i = 1 (MA-Echo, equation 6; a one-class SVM).

    Sequential minimal optimisation: weight moves from one entry to another, as much as lowers the objective most,
    between the pair that gains most to second order (Fan, Chen and Lin 2005), until the gradient is the same in all
    entries that are free to move. It starts from equal weights, and keeps them where A prefers none.

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
        # Exactly at a bound, so that an entry that is full or empty counts as such.
        weights[taker] = cap if step == cap - weights[taker] else weights[taker] + step
        weights[giver] -= step
        gradient += step * (gram[taker] - gram[giver])
    raise ArithmeticError(f"the weights of {count} clients do not settle in {_PAIRS} steps")


Weigh = Callable[[Tensor], Tensor]
"""From the clients' gradients, shape (clients, outputs, inputs), to their weights, shape (clients,)."""


@dataclass(frozen=True)
class Iteration:
    """The iteration of the paper.

    Args:
        steps: tau, how often all models move.
        step_size: eta.
        penalty: mu, how firmly local models keep to their data.
        weigh: chooses alpha.
        anchored: whether local models move from where they were trained (equation 11), or from where they are
            (Algorithm 1).
        normalise: whether each row of a local model moves by eta, at any distance.
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
            models: W_i, shape (clients, outputs, inputs), from any origin: see `merge`.
            projections: P_i onto the span of the clients' inputs, shape (clients, inputs, inputs).
            start: W, shape (outputs, inputs), from the same origin.

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
            local = base + (self.step_size * unit_rows(change) if self.normalise else change)
        return merged

    def _run_by_sums(self, models: Tensor, projections: Tensor, start: Tensor) -> Tensor:
        """Do the same where it is linear in W: a step takes one product for any number of clients.

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
    """Iterate as the authors' code does, `steps` times with eta = `step_size`; gives the last local models V_i.

    W <- W - eta / N sum_i (W - V_i) (I - Q_i)^T, then V_i <- V_i + eta Norm((W - V_i) Q_i^T).

    Args:
        models: W_i, shape (clients, outputs, inputs), from any origin: see `merge`.
        complements: Q_i, which the code uses for I - P_i, shape (clients, inputs, inputs).
        start: W, shape (outputs, inputs), from the same origin.
        normalise: whether each row of a local model moves by eta, at any distance.
    """
    merged, local = start, models
    transposed = complements.mT
    for _ in range(steps):
        apart = merged - local
        merged = merged - step_size * (apart - apart @ transposed).mean(0)
        change = (merged - local) @ transposed
        local = local + step_size * (unit_rows(change) if normalise else change)
    return local


def equal_weights(gradients: Tensor) -> Tensor:
    """The same weight for each client."""
    return gradients.new_full((len(gradients),), 1 / len(gradients))


def common_descent(cap: float) -> Weigh:
    """Weights whose sum of gradients is shortest: a step against it lowers every client's objective.

    Args:
        cap: C, the largest weight; at most 1. Where it is below 1 / N, all weights are equal.
    """

    def weigh(gradients: Tensor) -> Tensor:
        rows = gradients.flatten(1).double()
        gram = (rows @ rows.T).cpu().numpy()
        return torch.from_numpy(minimise_on_simplex(gram, max(cap, 1 / len(rows)))).to(gradients)

    return weigh


def unit_rows(change: Tensor) -> Tensor:
    """Scale every row, the last dimension, to length 1, however short it is; a row of zeros stays one."""
    largest = change.abs().amax(-1, keepdim=True)
    # Rows are scaled to a largest entry of 1 first, as the squares of small entries would be 0.
    return functional.normalize(change / torch.where(largest > 0, largest, 1), dim=-1)


def distance(merged: Tensor, models: Tensor, projections: Tensor) -> float:
    """Mean over clients of |(W - W_i) P_i|^2, the paper's objective (equation 3).

    W has shape (outputs, inputs), W_i (clients, outputs, inputs) and P_i (clients, inputs, inputs).
    """
    return float(((merged - models) @ projections).square().sum((1, 2)).mean())


@dataclass(frozen=True)
class Merged:
    """A global network.

    Args:
        distance_at_start: mean over clients of |(W - W_i) P_i|^2 (MA-Echo, equation 3), summed over layers, before.
        distance: the same, after.
    """

    parameters: Parameters
    distance_at_start: float
    distance: float


def merge(
    models: Sequence[Parameters],
    projections: Sequence[Mapping[str, Tensor]],
    start: Parameters,
    iteration: Iteration,
    layers: Iterable[str],
) -> Merged:
    """Run the paper's iteration layer by layer; gives W, with the paper's objective before and after.

    The first client is the origin, so that rounding is relative to the clients' differences.

    Args:
        models: W_i of the clients.
        projections: P_i by layer.
        start: W before the first step, of the layers that do not start at the clients' plain mean.
        layers: all of the network.
    """
    parameters: Parameters = {}
    before = after = 0.0
    for layer in layers:
        matrices = torch.stack([to_matrix(model, layer) for model in models])
        spans = torch.stack([one[layer] for one in projections])
        origin = matrices[0]
        apart = matrices - origin
        first = to_matrix(start, layer) - origin if f"{layer}.weight" in start else apart.mean(0)
        merged = iteration.run(apart, spans, first)
        before += distance(first, apart, spans)
        after += distance(merged, apart, spans)
        parameters |= from_matrix(origin + merged, layer, like=models[0])
    return Merged({name: parameters[name] for name in models[0]}, before, after)


def merge_official(
    models: Sequence[Parameters],
    complements: Sequence[Mapping[str, Tensor]],
    layers: Iterable[str],
    *,
    steps: int,
    step_size: float,
    normalise: bool,
) -> Parameters:
    """Iterate as `run_official` does, layer by layer; gives the mean of the local models, of these layers.

    Args:
        models: W_i of the clients.
        complements: Q_i by layer.
        layers: those that take part.
    """
    parameters: Parameters = {}
    for layer in layers:
        matrices = torch.stack([to_matrix(model, layer) for model in models])
        spaces = torch.stack([one[layer] for one in complements])
        origin = matrices[0]
        apart = matrices - origin
        local = run_official(apart, spaces, apart.mean(0), steps=steps, step_size=step_size, normalise=normalise)
        parameters |= from_matrix(origin + local.mean(0), layer, like=models[0])
    return parameters
