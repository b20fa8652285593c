"""Averages over the clients that hold a class, with two examples of it or more, as MA-Echo's authors take them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.uploads import Upload
from fedfisher_core.engine.errors import UnsupportedLayerError
from fedfisher_core.fisher.capture import uses_in
from fedfisher_core.models.spec import ModelSpec, Parameters, layers_with_weights

_TOO_FEW = 1


def holders(uploads: Sequence[Upload]) -> Tensor:
    """Which clients hold which class by their label counts: truth values, shape (clients, classes)."""
    return torch.stack([upload[LabelCounts].tensors["counts"] for upload in uploads]) > _TOO_FEW


def parts_of_holders(held: Tensor) -> Tensor:
    """Equal parts of each class for the clients that hold it.

    Args:
        held: see `holders`.

    Returns:
        Double precision, shape (clients, classes); 0 throughout for a class that no client holds.
    """
    return held.double() / held.sum(0).clamp(min=1)


def class_layer(spec: ModelSpec) -> str:
    """Name the layer whose rows are the classes: the last that is called, wherever it is defined.

    A network may also read the weights of its last layer itself, where it is the last in order of definition.

    Raises:
        UnsupportedLayerError: the layer has another number of rows.
    """
    network = spec.load({name: torch.zeros(shape) for name, shape in spec.shapes().items()}).eval().requires_grad_()
    layers = dict(layers_with_weights(network))
    called: list[str] = []
    for name, layer in layers.items():
        layer.register_forward_pre_hook(lambda *_, name=name: called.append(name))
    with torch.enable_grad():
        uses = uses_in(network(spec.inputs.zeros(1)))
    *_, defined = layers
    is_read = any(uses[id(one)] for one in layers[defined].parameters(recurse=False))
    name = defined if is_read and defined not in called else called[-1]
    layer = layers[name]
    rows = {key: len(one) for key, one in layer.named_parameters(prefix=name, recurse=False)}
    if set(rows.values()) != {spec.classes}:
        raise UnsupportedLayerError(
            f"model {spec.name!r}: the last layer, {name!r}, has tensors of {rows} rows; allowed: one row a class, "
            f"{spec.classes}"
        )
    return name


def mean_of_holders(models: Sequence[Parameters], held: Tensor, layer: str) -> Parameters:
    """Average each class's row of the last layer over the clients that hold the class, as MA-Echo's authors do.

    Args:
        held: see `holders`.
        layer: the last, see `class_layer`.

    Returns:
        The layer's parameters; rows of classes that no client holds are 0.
    """
    parts = parts_of_holders(held)
    rows = {name: torch.stack([one[name] for one in models]) for name in models[0] if name.rpartition(".")[0] == layer}
    return {name: torch.einsum("ic,ic...->c...", parts.to(one), one) for name, one in rows.items()}
