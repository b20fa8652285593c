"""Distances between the units of two networks by what they make of the same inputs."""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fedfisher_core.alignment.transport import squared_distances
from fedfisher_core.models.streams import StreamLayer

_BATCH = 100


@torch.no_grad()
def activation_distances(
    network: nn.Module, pivot: nn.Module, inputs: Tensor, layers: Sequence[StreamLayer]
) -> dict[str, Tensor]:
    """Compare the outputs of layers, before the non-linearity, on the same inputs.

    Args:
        network: in evaluation mode.
        pivot: another of the same architecture, in evaluation mode.
        inputs: at least one, shape (examples, ...), on the networks' device.
        layers: of both.

    Returns:
        By layer, squared distances between its units and the pivot's, float64, shape (units, units): summed over the
        pixels of feature maps or the places of sequences, averaged over examples.
    """
    total: dict[str, Tensor] = {}
    for batch in inputs.split(_BATCH):
        ours, theirs = _outputs(network, batch, layers), _outputs(pivot, batch, layers)
        for name, rows in ours.items():
            distances = squared_distances(rows, theirs[name]) / len(inputs)
            total[name] = total[name] + distances if name in total else distances
    return total


def _outputs(network: nn.Module, inputs: Tensor, layers: Sequence[StreamLayer]) -> dict[str, Tensor]:
    """By layer, one unit a row, and a column for each example and pixel or place."""
    kept: dict[str, Tensor] = {}

    def keep(name: str, module: nn.Module, _arguments: tuple[Any, ...], output: Tensor) -> None:
        # A copy, since an in-place operation may follow.
        kept[name] = output.double().movedim(-1 if isinstance(module, nn.Linear) else 1, 0).flatten(1)

    with ExitStack() as hooks:
        for layer in layers:
            module = network.get_submodule(layer.name)
            hooks.enter_context(module.register_forward_hook(partial(keep, layer.name)))
        network(inputs)
    return kept
