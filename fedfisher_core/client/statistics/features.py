"""Inputs and outputs of a client's layers, and networks that are one linear layer on shared features."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from fedfisher_core.client.local import Local
from fedfisher_core.engine.errors import UnsupportedLayerError
from fedfisher_core.fisher.capture import require_rows, trace
from fedfisher_core.fisher.layers import require_plain
from fedfisher_core.models.spec import ModelSpec, layers_with_weights, typed

See = Callable[[str, Tensor, Tensor], None]


def watch(local: Local, layers: Mapping[str, nn.Module], see: See, *, batch_size: int) -> None:
    """Run the network over the examples, and pass every batch's inputs and outputs of each layer to a function.

    Args:
        layers: of the client's network, by name.
        see: takes a layer's name, its inputs and its outputs, examples first.
        batch_size: examples at a time, in the client's order.
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


_BATCH_SIZE = 1000


def head_of(network: nn.Module) -> tuple[str, nn.Linear]:
    """The only layer of a network, with its name.

    Raises:
        UnsupportedLayerError: other layers have weights, so that each client's features differ; or the network is the
            layer itself.
    """
    layers = layers_with_weights(network)
    name, layer = layers[-1]
    if len(layers) > 1 or not name or not isinstance(layer, nn.Linear):
        names = ", ".join(other or "the network itself" for other, _ in layers)
        raise UnsupportedLayerError(
            f"statistics of features need features that all clients share, but trained layers make different ones on "
            f"each client; the layers with weights are {names}; allowed: one Linear alone, as of model 'linear'"
        )
    require_plain(name, layer)
    return name, layer


def require_head(spec: ModelSpec) -> nn.Linear:
    """The only layer of a network, without memory for its weights, if it is linear and sees one row an example.

    Raises:
        UnsupportedLayerError: it is not.
    """
    return _of_rows(spec, head_of)


def last_linear(network: nn.Module) -> tuple[str, nn.Linear]:
    """The last layer with weights, with its name, of networks of one layer or several.

    Raises:
        UnsupportedLayerError: it is not linear, or is the network itself.
    """
    name, layer = layers_with_weights(network)[-1]
    if not name or not isinstance(layer, nn.Linear):
        raise UnsupportedLayerError(f"{typed(name, layer)}; allowed: networks whose last layer with weights is Linear")
    require_plain(name, layer)
    return name, layer


def require_last_linear(spec: ModelSpec) -> nn.Linear:
    """The last layer with weights, without memory for these, if it is linear and sees one row an example.

    Raises:
        UnsupportedLayerError: it is not.
    """
    return _of_rows(spec, last_linear)


def require_class_rows(spec: ModelSpec) -> None:
    """Refuse networks whose last layer is not as `require_last_linear` asks, or has not one row of weights a class."""
    if (rows := require_last_linear(spec).out_features) != spec.classes:
        raise UnsupportedLayerError(
            f"the last layer with weights has {rows} rows; allowed: one row a class, {spec.classes}"
        )


def _of_rows(spec: ModelSpec, find: Callable[[nn.Module], tuple[str, nn.Linear]]) -> nn.Linear:
    network = spec.skeleton().eval()
    name, layer = find(network)
    require_rows({name: layer}, trace(network, {name: layer}, spec.inputs.zeros(1).to("meta")))
    return layer


def features_of(local: Local) -> Tensor:
    """The inputs of a client's only layer, shape (examples, features); UnsupportedLayerError if it has others."""
    return _inputs_of(local, *head_of(local.network))


def last_features_of(local: Local) -> Tensor:
    """The inputs of a client's last layer, shape (examples, features); see `last_linear` for errors."""
    return _inputs_of(local, *last_linear(local.network))


def _inputs_of(local: Local, name: str, layer: nn.Linear) -> Tensor:
    rows: list[Tensor] = []
    watch(local, {name: layer}, lambda _, inputs, __: rows.append(inputs), batch_size=_BATCH_SIZE)
    return torch.cat(rows)
