"""Which layers have a Fisher block, how their parameters form matrices, and what the matrices are called."""

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from fedfisher_core.engine.errors import UnsupportedLayerError
from fedfisher_core.models.batch_norm import BatchNorm
from fedfisher_core.models.spec import BatchNormalisation

_GROUP = re.compile(r"(.*)\[(\d+) of (\d+)\]", re.DOTALL)


@dataclass(frozen=True)
class MatrixName:
    """The name of a matrix: a layer, and a group of its rows.

    Args:
        layer: the layer's qualified name.
        group: counted from 1.
        groups: how many groups the layer has, each of equally many rows.
    """

    layer: str
    group: int = 1
    groups: int = 1

    @classmethod
    def of(cls, text: str) -> Self:
        """Read a name that `str` wrote."""
        found = _GROUP.fullmatch(text)
        return cls(text) if found is None else cls(found[1], int(found[2]), int(found[3]))

    def __str__(self) -> str:
        """The layer's name, followed by the group if there are several."""
        return self.layer if self.groups == 1 else f"{self.layer}[{self.group} of {self.groups}]"

    def rows(self, tensor: Tensor) -> Tensor:
        """Cut the matrix's rows from a tensor that holds all rows of the layer in its first dimension."""
        count = len(tensor) // self.groups
        return tensor[(self.group - 1) * count : self.group * count]


def matrix_names(layer: str, groups: int) -> list[str]:
    """Name the matrices of a layer, one a group, in the order of their rows."""
    return [str(MatrixName(layer, group, groups)) for group in range(1, groups + 1)]


def join(parts: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Put together named parameters whose rows are spread over several parts, in the order of the rows."""
    rows: dict[str, list[Tensor]] = defaultdict(list)
    for part in parts:
        for name, tensor in part.items():
            rows[name].append(tensor)
    return {name: tensors[0] if len(tensors) == 1 else torch.cat(tensors) for name, tensors in rows.items()}


Layer = nn.Linear | nn.Conv2d
"""A layer that multiplies its inputs by a matrix."""

Normalisation = nn.LayerNorm | nn.RMSNorm | nn.GroupNorm | BatchNorm
"""A layer with a factor and mostly a bias for every feature or channel; `BatchNorm` has its running statistics too."""

FactoredLayer = Layer | Normalisation
"""A layer that has Kronecker factors, or whole blocks in place of them."""

FisherLayer = FactoredLayer | nn.Embedding
"""A layer that has a Fisher in every form; the input factor of an embedding is diagonal."""

VECTORS = ("bias", "mean", "log_variance")
"""Parameters that a layer may have besides its weight, one number a row: the last columns of its matrix."""


def fisher_layers(model: nn.Module) -> dict[str, FisherLayer]:
    """Find the layers of a model that hold its parameters, by qualified name in order of definition.

    Every parameter must belong to an `nn.Linear`, an `nn.Conv2d`, an `nn.Embedding`, an `nn.LayerNorm`, an
    `nn.RMSNorm`, an `nn.GroupNorm` or a `BatchNorm` of this package, or be one of `own_parameters`.

    Raises:
        UnsupportedLayerError: a parameter belongs to another kind of layer, or to one with an option that changes its
            gradient, or with another forward; a layer is torch's own batch normalisation, or makes its weights of
            others; or two layers share a parameter.
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
        if not own and not is_parametrized(module):
            continue
        for parameter in own:
            if id(parameter) in owner:
                raise UnsupportedLayerError(f"layers {owner[id(parameter)]!r} and {name!r} share a parameter")
            owner[id(parameter)] = name
        if _holds_its_own(module):
            continue
        if not name:
            raise UnsupportedLayerError(
                f"the model, a {type(module).__name__}, is a layer itself; allowed: a model with layers as its parts"
            )
        if isinstance(module, nn.MultiheadAttention):
            raise UnsupportedLayerError(
                f"layer {name!r} has type MultiheadAttention, which hides what its projections see; allowed: attention "
                f"whose projections are Linear layers"
            )
        if not isinstance(module, nn.Embedding | Layer | Normalisation):
            raise UnsupportedLayerError(
                f"layer {name!r} has type {type(module).__name__}; Fisher blocks exist for Linear, Conv2d, Embedding, "
                f"LayerNorm, RMSNorm, GroupNorm and BatchNorm only"
            )
        _require_options(name, module)
        require_plain(name, module)
        layers[name] = module
    return layers


def require_plain(name: str, layer: nn.Module) -> None:
    """Refuse a layer that may compute something else than the torch layer that it is derived from.

    Raises:
        UnsupportedLayerError: it has a forward of its own, even if that computes the same, or makes its weights of
            others.
    """
    if is_parametrized(layer):
        raise UnsupportedLayerError(
            f"layer {name!r} has type {type(layer).__name__}, which makes its weights of others; allowed: layers that "
            "hold their weights, as torch.nn.utils.parametrize.remove_parametrizations leaves them"
        )
    own = ("torch.nn.modules.", BatchNorm.__module__)
    base = next(one for one in type(layer).__mro__ if one.__module__.startswith(own))
    if type(layer).forward is not base.forward or "forward" in vars(layer):  # type: ignore[attr-defined]
        raise UnsupportedLayerError(
            f"layer {name!r} has type {type(layer).__name__}, whose forward is not that of {base.__name__}; allowed: "
            f"{base.__name__} as it is"
        )


def own_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Find the parameters that modules of other packages than torch hold themselves, such as class tokens, by name.

    They have a diagonal and a dense Fisher. K-FAC has their diagonal.
    """
    return {
        f"{name}.{key}" if name else key: parameter
        for name, module in model.named_modules()
        if _holds_its_own(module)
        for key, parameter in module.named_parameters(recurse=False)
    }


_CONTAINERS = "torch.nn.modules.container"


def _holds_its_own(module: nn.Module) -> bool:
    if isinstance(module, BatchNorm):
        return False
    bases = (one for one in type(module).__mro__ if one.__module__.startswith("torch.nn.modules."))
    return all(one is nn.Module or one.__module__ == _CONTAINERS for one in bases)


def kfac_layers(model: nn.Module) -> dict[str, FisherLayer]:
    """Find the layers of a model that have K-FAC blocks, by qualified name in order of definition.

    Raises:
        UnsupportedLayerError: see `fisher_layers`; or a layer is a normalisation of several dimensions.
    """
    layers = fisher_layers(model)
    for name, layer in layers.items():
        if isinstance(layer, nn.LayerNorm | nn.RMSNorm) and len(layer.normalized_shape) != 1:
            raise UnsupportedLayerError(
                f"layer {name!r} has type {type(layer).__name__} with normalized_shape={layer.normalized_shape}; "
                f"Kronecker factors exist for one dimension only"
            )
    return layers


def factored_layers(model: nn.Module) -> dict[str, FactoredLayer]:
    """Find the layers of a model whose factors are all whole matrices, by qualified name in order of definition.

    Raises:
        UnsupportedLayerError: see `kfac_layers`; or the model has an embedding, or parameters of its own.
    """
    what = "input factor is diagonal; whole Kronecker factors exist for Linear, Conv2d, LayerNorm, RMSNorm, GroupNorm"
    for name in own_parameters(model):
        raise UnsupportedLayerError(f"parameter {name!r} is in no layer of torch, and its {what} and BatchNorm only")
    layers: dict[str, FactoredLayer] = {}
    for name, layer in kfac_layers(model).items():
        if isinstance(layer, nn.Embedding):
            raise UnsupportedLayerError(f"layer {name!r} has type Embedding, and its {what} and BatchNorm only")
        layers[name] = layer
    return layers


def matrix_layers(model: nn.Module) -> dict[str, Layer]:
    """Find the layers of a model whose layers all multiply their inputs by one matrix, by name in order of definition.

    Every parameter must belong to an `nn.Linear` or an ungrouped `nn.Conv2d`.

    Raises:
        UnsupportedLayerError: see `fisher_layers`; or a parameter belongs to an embedding, to a normalisation or to a
            grouped convolution.
    """
    what = "projections, attacks, backend 'nngeometry' and what is made with differential privacy"
    found = fisher_layers(model)
    layers: dict[str, Layer] = {}
    for name in own_parameters(model):
        raise UnsupportedLayerError(
            f"parameter {name!r} is in no layer of torch; {what} exist for Linear and Conv2d only"
        )
    for name, layer in found.items():
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
    """Refuse options that make a layer's gradient differ from the one that its block assumes."""
    if not isinstance(layer, nn.Embedding):
        return
    options: dict[str, tuple[object, object]] = {
        "max_norm": (layer.max_norm, None),
        "scale_grad_by_freq": (layer.scale_grad_by_freq, False),
    }
    for option, (value, allowed) in options.items():
        if value != allowed:
            raise UnsupportedLayerError(
                f"layer {name!r} has type {type(layer).__name__} with {option}={value}; allowed: {allowed}"
            )


def groups_of(layer: FactoredLayer) -> int:
    """Number of groups of rows of a layer, each with a matrix and inputs that the others do not see."""
    match layer:
        case nn.Linear():
            return 1
        case nn.Conv2d():
            return layer.groups
        case nn.LayerNorm() | nn.RMSNorm() | nn.GroupNorm() | BatchNorm():
            return layer.weight.numel()


def to_matrix(parameters: Mapping[str, Tensor], matrix: str) -> Tensor:
    """Join all parameters of a layer, or of a group of its rows, to one matrix.

    Args:
        parameters: tensors named and shaped like the model's parameters.
        matrix: the layer's name, or one of `matrix_names`.

    Returns:
        A matrix with a row for each output. The first columns are the inputs; for a convolution the channels
        (of one group) x height x width, for a normalisation a single column. Then each of `VECTORS` that exists has a
        column.
    """
    name = MatrixName.of(matrix)
    rows = name.rows(parameters[f"{name.layer}.weight"])
    weight = rows.reshape(len(rows), -1)
    beside = [name.rows(parameters[vector])[:, None] for vector in vectors_of(name.layer, parameters)]
    return torch.cat([weight, *beside], dim=1) if beside else weight


def from_matrix(values: Tensor, matrix: str, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Undo `to_matrix`: the layer's named tensors, or the group's rows of them, which `join` puts together.

    Args:
        like: tensors named and shaped like the model's parameters.
    """
    if matrix in like:
        return {matrix: values.reshape(like[matrix].shape)}
    name = MatrixName.of(matrix)
    weight, vectors = f"{name.layer}.weight", vectors_of(name.layer, like)
    columns = values.shape[1] - len(vectors)
    parts = [values[:, :columns], *values[:, columns:].unbind(1)]
    return {
        parameter: part.reshape(name.rows(like[parameter]).shape)
        for parameter, part in zip([weight, *vectors], parts, strict=True)
    }


def weight_of(layer: str, parameters: Container[str]) -> str:
    """The name of a layer's weight, or the name itself where it is that of a parameter that no layer holds."""
    return layer if layer in parameters else f"{layer}.weight"


def vectors_of(layer: str, parameters: Container[str]) -> list[str]:
    """The names of a layer's `VECTORS` that occur among a model's parameters, in the order of the columns."""
    return [name for name in (f"{layer}.{vector}" for vector in VECTORS) if name in parameters]
