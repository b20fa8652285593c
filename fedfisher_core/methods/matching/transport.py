"""Optimal transport between the units of two layers, by their weights or by what they make of inputs."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fedfisher_core.models.streams import StreamLayer

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
        """Compute the plan of least cost between equal numbers of units.

        Args:
            squared_distances: not negative, shape (units, units).

        Returns:
            The mass that goes from each unit (row) to each of the others (column). Every unit has mass 1, which is
            the plan between uniform distributions times their number: the exact plan is a permutation. Columns of
            Sinkhorn's plan sum to 1 after any number of iterations, so that nothing is lost. Rows do once it
            has converged.
        """
        cost = self._ground_metric(squared_distances.double())
        # POT takes seconds to import, which users of other methods need not wait for.
        import ot

        masses = torch.ones(len(cost), dtype=cost.dtype, device=cost.device)
        if self.reg is None:
            numbers = (tensor.cpu().numpy() for tensor in (masses, masses, cost))
            return torch.from_numpy(ot.emd(*numbers, numItermax=_EXACT_ITERATIONS)).to(cost.device)
        # The last half-step of POT makes the marginal of the rows exact, hence the transposes.
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
    """Squared Euclidean distances between rows, shape (units, others), of float64 rows."""
    lengths = ours.square().sum(1)[:, None] + theirs.square().sum(1)
    return (lengths - 2 * ours @ theirs.T).clamp(min=0)


_BATCH = 100


@torch.no_grad()
def activation_distances(
    network: nn.Module, pivot: nn.Module, inputs: Tensor, layers: Sequence[StreamLayer]
) -> dict[str, Tensor]:
    """Compare the outputs of layers, before the non-linearity, on the same inputs.

    Args:
        network: in evaluation mode, like the pivot.
        inputs: at least one, shape (examples, ...), on the networks' device.

    Returns:
        By layer, squared distances between its units and the pivot's, float64, shape (units, units): summed over the
        pixels of feature maps or the positions of sequences, averaged over examples.
    """
    total: dict[str, Tensor] = {}
    for batch in inputs.split(_BATCH):
        ours, theirs = _outputs(network, batch, layers), _outputs(pivot, batch, layers)
        for name, rows in ours.items():
            distances = squared_distances(rows, theirs[name]) / len(inputs)
            total[name] = total[name] + distances if name in total else distances
    return total


def _outputs(network: nn.Module, inputs: Tensor, layers: Sequence[StreamLayer]) -> dict[str, Tensor]:
    """By layer, one unit a row, and a column for each example and pixel or position."""
    kept: dict[str, Tensor] = {}

    def keep(name: str, module: nn.Module, _arguments: tuple[Any, ...], output: Tensor) -> None:
        # It is copied, since the next operation may work in place.
        kept[name] = output.double().movedim(-1 if isinstance(module, nn.Linear) else 1, 0).flatten(1)

    with ExitStack() as hooks:
        for layer in layers:
            module = network.get_submodule(layer.name)
            hooks.enter_context(module.register_forward_hook(partial(keep, layer.name)))
        network(inputs)
    return kept
