"""What the layers of a client's network see and make of the client's data."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from fedfisher_core.client.local import Local

See = Callable[[str, Tensor, Tensor], None]


def watch(local: "Local", layers: Mapping[str, nn.Module], see: See, *, batch_size: int) -> None:
    """Run the network over the examples, and show a function what enters and leaves each layer.

    Args:
        local: the trained client.
        layers: of its network, by name.
        see: takes a layer's name, its inputs and its outputs, examples first; called for every batch.
        batch_size: examples at a time, in the order in which the client keeps them.
    """

    def hook(name: str, _: nn.Module, arguments: tuple[Tensor, ...], outputs: Tensor) -> None:
        see(name, arguments[0], outputs)

    hooks = [layer.register_forward_hook(partial(hook, name)) for name, layer in layers.items()]
    try:
        with torch.no_grad():
            for batch in local.examples.inputs.split(batch_size):
                local.network(batch)
    finally:
        for one in hooks:
            one.remove()
