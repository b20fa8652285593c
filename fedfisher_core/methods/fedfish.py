"""FedFish: a global step along the clients' changes, each coordinate weighted by summed squared gradients."""

from collections.abc import Sequence, Set

import torch
from pydantic import PositiveFloat
from torch import Tensor

from fedfisher_core.client.statistics.squared_gradients import SquaredGradients
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import Summation, Sums, proportions, weighted_terms
from fedfisher_core.methods.shared.task_vectors import measured_names
from fedfisher_core.models.spec import Parameters


def _step(
    initial: Parameters,
    changes: Parameters,
    totals: Parameters,
    means: Parameters,
    global_step: float,
    measured: Set[str],
) -> Parameters:
    """Step by the weighted mean of the changes, and by their plain mean where no client gives a weight.

    Running statistics, which are measured, go the whole way.
    """
    informed = {name: total > 0 for name, total in totals.items()}
    steps = {
        name: torch.where(informed[name], changes[name] / torch.where(informed[name], total, 1), means[name])
        for name, total in totals.items()
    }
    return {
        name: (initial[name] - (1.0 if name in measured else global_step) * step).float()
        for name, step in steps.items()
    }


def _start(server: Server, like: Parameters, global_step: float) -> Parameters:
    """The weights that all clients started from, or zeros where these are not known and cancel."""
    if server.knows_start or global_step != 1:
        return server.initial
    return {name: torch.zeros_like(tensor) for name, tensor in like.items()}


def _of_sums(server: Server, sums: Sums, *, global_step: float) -> Aggregate:
    totals, products, weights = sums.mean_weight("fisher"), sums.mean("product"), sums.mean("weights")
    initial = _start(server, weights, global_step)
    changes = {name: total * initial[name] - products[name] for name, total in totals.items()}
    means = {name: initial[name] - mean for name, mean in weights.items()}
    return Aggregate.of(_step(initial, changes, totals, means, global_step, measured_names(server)))


def step_from(
    initial: Parameters, uploads: Sequence[Upload], *, global_step: float, measured: Set[str] = frozenset()
) -> Parameters:
    """Step from the initial weights w by the weighted mean of the clients' changes; see `fedfish`.

    Args:
        measured: names of running statistics, for which eta is 1.

    Returns:
        w - eta sum_i n_i F_i (w - w_i) / sum_i n_i F_i, coordinate by coordinate.
    """
    changes, totals, means = (_zeros(initial) for _ in range(3))
    for share, upload in zip(proportions(uploads), uploads, strict=True):
        for name, trained in upload[Weights].tensors.items():
            squares = share * upload[SquaredGradients].tensors[name].double()
            changes[name] += squares * (initial[name] - trained)
            means[name] += share * (initial[name] - trained)
            totals[name] += squares
    return _step(initial, changes, totals, means, global_step, measured)


@method(
    "fedfish",
    uploads=(Weights, SquaredGradients),
    reference="https://arxiv.org/abs/2311.10291",
    shared_start=lambda settings: settings.global_step != 1,
    sums=Summation(weighted_terms(SquaredGradients), _of_sums),
)
def fedfish(server: Server, uploads: Sequence[Upload], *, global_step: PositiveFloat = 1.0) -> Aggregate:
    """Step from the initial weights by the weighted mean of the clients' changes (Dhawan et al. 2023, Algorithm 1).

    It is w - eta sum_i n_i F_i (w - w_i) / sum_i n_i F_i, coordinate by coordinate, with the summed squared gradients
    F_i. Where these are 0 for all clients the weights are those of FedAvg, as for equal ones.

    Args:
        global_step: eta; at 1 the result does not depend on the initial weights, up to rounding. Running statistics,
            which are measured rather than learnt, always have 1.
    """
    initial = _start(server, uploads[0][Weights].tensors, global_step)
    return Aggregate.of(step_from(initial, uploads, global_step=global_step, measured=measured_names(server)))


def _zeros(like: dict[str, Tensor]) -> dict[str, Tensor]:
    """Sums in double precision: products with the squared gradients of trained networks would underflow."""
    return {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in like.items()}
