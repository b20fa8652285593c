"""Optimal transport between the units of two layers, every unit with the same mass."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

_EXACT_ITERATIONS = 10**8


Normalisation = Literal["none", "log", "max", "mean", "median"]


@dataclass(frozen=True)
class Transport:
    """How a transport plan is computed.

    Args:
        reg: weight of the entropy, in units of the ground metric; None for the exact plan.
        iterations: most iterations of Sinkhorn.
        squared: whether the ground metric is the squared distance or the distance.
        normalisation: of the ground metric: its logarithm log(1 + x), or its quotient by its largest, mean or median
            value, which changes no exact plan.
    """

    reg: float | None = None
    iterations: int = 1000
    squared: bool = True
    normalisation: Normalisation = "none"

    def plan(self, squared_distances: Tensor) -> Tensor:
        """Compute the plan of least cost between as many units as there are others.

        Args:
            squared_distances: not negative, shape (units, units).

        Returns:
            The mass that goes from each unit (row) to each of the others (column). Every unit has mass 1, which is
            the plan between uniform distributions times their number: the exact plan is a permutation. Columns of
            Sinkhorn's plan sum to 1 however far it came, so that nothing is lost; rows do where it converged.
        """
        cost = self._ground_metric(squared_distances.double())
        # POT takes seconds to import, which users of other methods need not wait for.
        import ot

        masses = torch.ones(len(cost), dtype=cost.dtype, device=cost.device)
        if self.reg is None:
            numbers = (tensor.cpu().numpy() for tensor in (masses, masses, cost))
            return torch.from_numpy(ot.emd(*numbers, numItermax=_EXACT_ITERATIONS)).to(cost.device)
        # The marginal that the last half-step of POT makes exact is that of the rows.
        plan = ot.bregman.sinkhorn_log(masses, masses, cost.T, self.reg, numItermax=self.iterations, warn=False)
        return plan.T

    def _ground_metric(self, squared_distances: Tensor) -> Tensor:
        cost = squared_distances if self.squared else squared_distances.sqrt()
        match self.normalisation:
            case "none":
                return cost
            case "log":
                return cost.log1p()
            case "max":
                scale = cost.max()
            case "mean":
                scale = cost.mean()
            case "median":
                scale = cost.median()
        # Where most units are equal, such as dead ones, there is no scale.
        return cost / scale if scale > 0 else cost


EXACT = Transport()


def squared_distances(ours: Tensor, theirs: Tensor) -> Tensor:
    """Compute the squared Euclidean distances between rows.

    Args:
        ours: float64, shape (units, features).
        theirs: float64, shape (others, features).

    Returns:
        Not negative, shape (units, others).
    """
    lengths = ours.square().sum(1)[:, None] + theirs.square().sum(1)
    return (lengths - 2 * ours @ theirs.T).clamp(min=0)
