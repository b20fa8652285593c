"""One network of the clients' own, layer by layer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfisher_core.common_optima.updates import Iteration, distance, run_official
from fedfisher_core.fisher.layers import from_matrix, to_matrix
from fedfisher_core.models.spec import Parameters


@dataclass(frozen=True)
class Merged:
    """A global network.

    Args:
        parameters: of the network.
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
    """Iterate as the paper does.

    Args:
        models: W_i of the clients.
        projections: P_i by layer.
        start: W before the first step.
        iteration: what is done to each layer.
        layers: all of the network.

    Returns:
        W, with the paper's objective before and after.
    """
    parameters: Parameters = {}
    before = after = 0.0
    for layer in layers:
        matrices = torch.stack([to_matrix(model, layer) for model in models])
        spans = torch.stack([one[layer] for one in projections])
        first = to_matrix(start, layer)
        merged = iteration.run(matrices, spans, first)
        before += distance(first, matrices, spans)
        after += distance(merged, matrices, spans)
        parameters |= from_matrix(merged, layer, like=models[0])
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
    """Iterate as the authors' code does.

    Args:
        models: W_i of the clients.
        complements: Q_i by layer.
        layers: those that take part.
        steps: T.
        step_size: eta.
        normalise: whether each row of a local model moves by eta, whatever its distance.

    Returns:
        The mean of the local models, of these layers.
    """
    parameters: Parameters = {}
    for layer in layers:
        matrices = torch.stack([to_matrix(model, layer) for model in models])
        spaces = torch.stack([one[layer] for one in complements])
        start = matrices.mean(0)
        local = run_official(matrices, spaces, start, steps=steps, step_size=step_size, normalise=normalise)
        parameters |= from_matrix(local.mean(0), layer, like=models[0])
    return parameters
