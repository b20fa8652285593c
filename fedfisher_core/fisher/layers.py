"""Which layers have a Fisher block, and how their parameters form one matrix each."""

from collections.abc import Container, Mapping

import torch
from torch import Tensor, nn

from fedfisher_core.errors import UnsupportedLayerError
from fedfisher_core.fisher.matrix_names import MatrixName
from fedfisher_core.models.batch_norm import BatchNorm
from fedfisher_core.models.spec import BatchNormalisation

Layer = nn.Linear | nn.Conv2d
"""What has a matrix that its inputs are multiplied by."""

Normalisation = nn.LayerNorm | nn.GroupNorm | BatchNorm
"""What has a factor and a bias for every feature or channel; the last has its running statistics beside them."""

FactoredLayer = Layer | Normalisation
"""What has Kronecker factors, or whole blocks in place of them."""

FisherLayer = FactoredLayer | nn.Embedding
"""What has a diagonal and a dense Fisher."""

VECTORS = ("bias", "mean", "log_variance")
"""What a layer may have beside its weight, one number a row: the last columns of its matrix."""


def fisher_layers(model: nn.Module) -> dict[str, FisherLayer]:
    """Find the layers of a model that hold its parameters, in order of definition.

    Args:
        model: the network; every parameter must belong to an `nn.Linear`, an `nn.Conv2d`, an `nn.Embedding`, an
            `nn.LayerNorm`, an `nn.GroupNorm` or a `BatchNorm` of this package.

    Returns:
        The layers by their qualified name.

    Raises:
        UnsupportedLayerError: a parameter belongs to another kind of layer, or to one with an option that changes its
            gradient; a layer is torch's own batch normalisation, or two layers share a parameter.
    """
    layers: dict[str, FisherLayer] = {}
    owner: dict[int, str] = {}
    for name, module in model.named_modules():
        if isinstance(module, BatchNormalisation):
            raise UnsupportedLayerError(
                f"layer {name!r} has type {type(module).__name__}, whose running statistics are no parameters; "
                f"allowed: GroupNorm, LayerNorm or {BatchNorm.__module__}.BatchNorm in its place"
            )
        own = list(module.parameters(recurse=False))
        if not own:
            continue
        if not name:
            raise UnsupportedLayerError(
                f"the model, a {type(module).__name__}, holds parameters itself; allowed: a model whose parts do"
            )
        if not isinstance(module, nn.Embedding | Layer | Normalisation):
            raise UnsupportedLayerError(
                f"layer {name!r} has type {type(module).__name__}; Fisher blocks exist for Linear, Conv2d, Embedding, "
                f"LayerNorm, GroupNorm and BatchNorm only"
            )
        _require_options(name, module)
        for parameter in own:
            if id(parameter) in owner:
                raise UnsupportedLayerError(f"layers {owner[id(parameter)]!r} and {name!r} share a parameter")
            owner[id(parameter)] = name
        layers[name] = module
    return layers


def factored_layers(model: nn.Module) -> dict[str, FactoredLayer]:
    """Find the layers of a model that has no others than those with Kronecker factors.

    Args:
        model: the network; every parameter must belong to an `nn.Linear`, an `nn.Conv2d`, an `nn.GroupNorm`, a
            `BatchNorm` or an `nn.LayerNorm` of the last dimension.

    Returns:
        The layers by their qualified name, in order of definition.

    Raises:
        UnsupportedLayerError: see `fisher_layers`; or a parameter belongs to an embedding or to a normalisation of
            several dimensions.
    """
    layers: dict[str, FactoredLayer] = {}
    for name, layer in fisher_layers(model).items():
        if isinstance(layer, nn.Embedding):
            raise UnsupportedLayerError(
                f"layer {name!r} has type {type(layer).__name__}; Kronecker factors exist for Linear, Conv2d, "
                f"LayerNorm, GroupNorm and BatchNorm only"
            )
        if isinstance(layer, nn.LayerNorm) and len(layer.normalized_shape) != 1:
            raise UnsupportedLayerError(
                f"layer {name!r} has type LayerNorm with normalized_shape={layer.normalized_shape}; Kronecker factors "
                f"exist for one dimension only"
            )
        layers[name] = layer
    return layers


def matrix_layers(model: nn.Module) -> dict[str, Layer]:
    """Find the layers of a model that has no others than those with one matrix that all their inputs are multiplied by.

    Args:
        model: the network; every parameter must belong to an `nn.Linear` or an ungrouped `nn.Conv2d`.

    Returns:
        The layers by their qualified name, in order of definition.

    Raises:
        UnsupportedLayerError: see `fisher_layers`; or a parameter belongs to an embedding, to a normalisation or to a
            convolution of groups, each of which has a matrix of its own.
    """
    what = "projections, attacks, backend 'nngeometry' and what is made with differential privacy"
    layers: dict[str, Layer] = {}
    for name, layer in fisher_layers(model).items():
        if not isinstance(layer, nn.Linear | nn.Conv2d):
            raise UnsupportedLayerError(
                f"layer {name!r} has type {type(layer).__name__}; {what} exist for Linear and Conv2d only"
            )
        if isinstance(layer, nn.Conv2d) and layer.groups != 1:
            raise UnsupportedLayerError(
                f"layer {name!r} is a Conv2d with groups={layer.groups}; {what} exist for groups=1 only"
            )
        layers[name] = layer
    return layers


def _require_options(name: str, layer: FisherLayer) -> None:
    """Refuse options by which a layer's gradient is another than that of its block."""
    if not isinstance(layer, nn.Embedding):
        return
    options: dict[str, tuple[object, object]] = {
        "padding_idx": (layer.padding_idx, None),
        "max_norm": (layer.max_norm, None),
        "scale_grad_by_freq": (layer.scale_grad_by_freq, False),
    }
    for option, (value, allowed) in options.items():
        if value != allowed:
            raise UnsupportedLayerError(
                f"layer {name!r} has type {type(layer).__name__} with {option}={value}; allowed: {allowed}"
            )


def groups_of(layer: FactoredLayer) -> int:
    """How many groups of a layer's rows have a matrix of their own, whose inputs the others don't see."""
    match layer:
        case nn.Linear():
            return 1
        case nn.Conv2d():
            return layer.groups
        case nn.LayerNorm() | nn.GroupNorm() | BatchNorm():
            return layer.weight.numel()


def to_matrix(parameters: Mapping[str, Tensor], matrix: str) -> Tensor:
    """Join all parameters of a layer, or of a group of its rows, to one matrix.

    Args:
        parameters: tensors named and shaped like the model's parameters.
        matrix: its name: the layer's, or one of `matrix_names`.

    Returns:
        A matrix of shape (outputs, inputs), for convolutions (outputs, channels x height x width) with the channels of
        one group, for normalisations (features or channels, 1); then a column for each of `VECTORS` that there is.
    """
    name = MatrixName.of(matrix)
    rows = name.rows(parameters[f"{name.layer}.weight"])
    weight = rows.reshape(len(rows), -1)
    beside = [name.rows(parameters[vector])[:, None] for vector in vectors_of(name.layer, parameters)]
    return torch.cat([weight, *beside], dim=1) if beside else weight


def from_matrix(values: Tensor, matrix: str, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Undo `to_matrix`.

    Args:
        values: as `to_matrix` makes them.
        matrix: its name.
        like: tensors named and shaped like the model's parameters.

    Returns:
        The layer's named tensors, or the group's rows of them, which `join` puts together.
    """
    name = MatrixName.of(matrix)
    weight, vectors = f"{name.layer}.weight", vectors_of(name.layer, like)
    columns = values.shape[1] - len(vectors)
    parts = [values[:, :columns], *values[:, columns:].unbind(1)]
    return {
        parameter: part.reshape(name.rows(like[parameter]).shape)
        for parameter, part in zip([weight, *vectors], parts, strict=True)
    }


def vectors_of(layer: str, parameters: Container[str]) -> list[str]:
    """Find what a layer has beside its weight.

    Args:
        layer: its qualified name.
        parameters: names of all parameters of a model.

    Returns:
        Names of its `VECTORS`, in the order of the columns.
    """
    return [name for name in (f"{layer}.{vector}" for vector in VECTORS) if name in parameters]
