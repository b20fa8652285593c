"""Which layers have a Fisher block, and how their parameters form one matrix each."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fedfisher_core.errors import UnsupportedLayerError

Layer = nn.Linear | nn.Conv2d
"""What has a matrix that its inputs are multiplied by."""

FisherLayer = Layer | nn.Embedding | nn.LayerNorm | nn.GroupNorm
"""What has a diagonal and a dense Fisher."""

BatchNormalisation = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm


def fisher_layers(model: nn.Module) -> dict[str, FisherLayer]:
    """Find the layers of a model that hold its parameters, in order of definition.

    Args:
        model: the network; every parameter must belong to an `nn.Linear`, an `nn.Conv2d`, an `nn.Embedding`, an
            `nn.LayerNorm` of the last dimension or an `nn.GroupNorm`.

    Returns:
        The layers by their qualified name.

    Raises:
        UnsupportedLayerError: a parameter belongs to another kind of layer, or to one with an option that changes its
            gradient; a layer normalises over the batch, or two layers share a parameter.
    """
    layers: dict[str, FisherLayer] = {}
    owner: dict[int, str] = {}
    for name, module in model.named_modules():
        if isinstance(module, BatchNormalisation):
            raise UnsupportedLayerError(
                f"layer {name!r} is a {type(module).__name__}; a Fisher is a mean over examples, which batch "
                f"normalisation mixes"
            )
        own = list(module.parameters(recurse=False))
        if not own:
            continue
        if not name:
            raise UnsupportedLayerError(
                f"the model, a {type(module).__name__}, holds parameters itself; allowed: a model whose parts do"
            )
        if not isinstance(module, nn.Linear | nn.Conv2d | nn.Embedding | nn.LayerNorm | nn.GroupNorm):
            raise UnsupportedLayerError(
                f"layer {name!r} is a {type(module).__name__}; Fisher blocks exist for Linear, Conv2d, Embedding, "
                f"LayerNorm and GroupNorm only"
            )
        _require_options(name, module)
        for parameter in own:
            if id(parameter) in owner:
                raise UnsupportedLayerError(f"layers {owner[id(parameter)]!r} and {name!r} share a parameter")
            owner[id(parameter)] = name
        layers[name] = module
    return layers


def matrix_layers(model: nn.Module) -> dict[str, Layer]:
    """Find the layers of a model that has no others than those with a matrix that their inputs are multiplied by.

    Args:
        model: the network; every parameter must belong to an `nn.Linear` or an ungrouped `nn.Conv2d`.

    Returns:
        The layers by their qualified name, in order of definition.

    Raises:
        UnsupportedLayerError: see `fisher_layers`; or a parameter belongs to an embedding, to a normalisation or to a
            convolution of groups, each of which has a matrix of its own.
    """
    layers: dict[str, Layer] = {}
    for name, layer in fisher_layers(model).items():
        if not isinstance(layer, nn.Linear | nn.Conv2d):
            raise UnsupportedLayerError(
                f"layer {name!r} is a {type(layer).__name__}; Kronecker factors, projections and what is made with "
                f"differential privacy exist for Linear and Conv2d only"
            )
        if isinstance(layer, nn.Conv2d) and layer.groups != 1:
            raise UnsupportedLayerError(
                f"layer {name!r} is a Conv2d with groups={layer.groups}; Kronecker factors, projections and what is "
                f"made with differential privacy exist for groups=1 only"
            )
        layers[name] = layer
    return layers


def _require_options(name: str, layer: FisherLayer) -> None:
    """Refuse options by which a layer's gradient is another than that of its block."""
    options: dict[str, tuple[object, object]] = {}
    match layer:
        case nn.Embedding():
            options = {
                "padding_idx": (layer.padding_idx, None),
                "max_norm": (layer.max_norm, None),
                "scale_grad_by_freq": (layer.scale_grad_by_freq, False),
            }
        case nn.LayerNorm():
            options = {"normalized_shape": (layer.normalized_shape, layer.normalized_shape[-1:])}
    for option, (value, allowed) in options.items():
        if value != allowed:
            raise UnsupportedLayerError(
                f"layer {name!r} is a {type(layer).__name__} with {option}={value}; allowed: {allowed}"
            )


def to_matrix(parameters: Mapping[str, Tensor], layer: str) -> Tensor:
    """Join a layer's weight and bias to one matrix.

    Args:
        parameters: tensors named and shaped like the model's parameters.
        layer: the layer's qualified name.

    Returns:
        A matrix of shape (outputs, inputs), for convolutions (outputs, channels x height x width) with the channels of
        one group; a bias is its last column.
    """
    weight = parameters[f"{layer}.weight"].flatten(1)
    bias = parameters.get(f"{layer}.bias")
    return weight if bias is None else torch.cat([weight, bias[:, None]], dim=1)


def from_matrix(matrix: Tensor, layer: str, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Undo `to_matrix`.

    Args:
        matrix: shape (outputs, inputs [+ 1]); of a normalisation, (features or channels, 1 [+ 1]).
        layer: the layer's qualified name.
        like: tensors with the names and shapes to return.

    Returns:
        The layer's named tensors.
    """
    weight, bias = f"{layer}.weight", f"{layer}.bias"
    if bias not in like:
        return {weight: matrix.reshape(like[weight].shape)}
    return {weight: matrix[:, :-1].reshape(like[weight].shape), bias: matrix[:, -1]}
