"""Networks that are one linear layer, whose inputs are features that all clients share."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from fedfisher_core.client.watching import watch
from fedfisher_core.errors import UnsupportedLayerError
from fedfisher_core.fisher.capture import require_rows, trace
from fedfisher_core.models.spec import ModelSpec

if TYPE_CHECKING:
    from fedfisher_core.client.local import Local

_BATCH_SIZE = 1000


def head_of(network: nn.Module) -> tuple[str, nn.Linear]:
    """Find the layer that is all of a network.

    Args:
        network: the network.

    Returns:
        The layer's name, and the layer.

    Raises:
        UnsupportedLayerError: the network has other layers with weights, so that what its last one reads is no client's
            but its own.
    """
    layers = [(name, one) for name, one in network.named_modules() if any(True for _ in one.parameters(recurse=False))]
    name, layer = layers[-1]
    if len(layers) > 1 or not isinstance(layer, nn.Linear):
        raise UnsupportedLayerError(
            f"statistics of features need features that all clients share, and what trained layers make is each "
            f"client's own; the layers with weights are {', '.join(other for other, _ in layers)}; allowed: one Linear "
            f"alone, as of model 'linear'"
        )
    return name, layer


def require_head(spec: ModelSpec) -> nn.Linear:
    """Make sure that a network is one linear layer that sees one row an example.

    Args:
        spec: the network that clients train.

    Returns:
        The layer, without memory for its weights.

    Raises:
        UnsupportedLayerError: it is not.
    """
    network = spec.skeleton().eval()
    name, layer = head_of(network)
    require_rows({name: layer}, trace(network, {name: layer}, spec.inputs.zeros(1).to("meta")))
    return layer


def features_of(local: "Local") -> Tensor:
    """Collect what the layer reads of a client's examples.

    Args:
        local: the client; its network is one linear layer.

    Returns:
        Features, shape (examples, features), in the order in which the client keeps its examples.

    Raises:
        UnsupportedLayerError: the network is not one linear layer.
    """
    rows: list[Tensor] = []
    name, layer = head_of(local.network)
    watch(local, {name: layer}, lambda _, inputs, __: rows.append(inputs), batch_size=_BATCH_SIZE)
    return torch.cat(rows)
