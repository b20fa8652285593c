"""The exact Fisher of a classifier by the library nngeometry 0.3, as the paper computed it.

It makes one pass for each approximation, and in it one backward pass through the whole network for each class.
"""

import copy
from collections.abc import Set

import torch
from torch import Tensor, nn

from fedfisher_core.engine.errors import InputError, UnsupportedLayerError
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.capture import require_rows, trace
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.fisher.layers import Layer, matrix_layers
from fedfisher_core.fisher.result import Fisher, require_finite

BATCH_SIZE = 64
"""Examples in flight; nngeometry is about as fast with more and slower with fewer."""


def compute(
    model: nn.Module, inputs: Tensor, *, approximations: Set[Approximation], batch_size: int = BATCH_SIZE
) -> Fisher:
    """Compute the exact Fisher for the softmax cross-entropy.

    Args:
        model: a network of `nn.Linear` and ungrouped `nn.Conv2d` layers, in evaluation mode.
        inputs: examples, shape (examples, ...).
        approximations: a dense Fisher is refused.
        batch_size: examples in flight.

    Raises:
        InputError: a dense Fisher was asked for.
        UnsupportedLayerError: a layer has no Fisher block, or nngeometry computes a wrong one.
        DivergedClientError: the Fisher is not finite.
    """
    from nngeometry.metrics import FIM
    from nngeometry.object import PMatDiag, PMatKFAC
    from torch.utils.data import DataLoader, TensorDataset

    if Approximation.DENSE in approximations:
        raise InputError("backend 'nngeometry' was asked for 'dense'; allowed: 'diagonal', 'kfac'")
    # nngeometry leaves its hooks behind if it fails, so it works on a copy.
    model = copy.deepcopy(model).requires_grad_(True)
    device = next(model.parameters()).device
    layers, outputs = supported_layers(model, inputs[:1].to(device))
    loader = DataLoader(TensorDataset(inputs, torch.zeros(len(inputs))), batch_size=batch_size)
    arguments = {"n_output": outputs, "variant": "classif_logits", "device": device}
    diagonal, kfac = None, None
    if Approximation.DIAGONAL in approximations:
        flat = FIM(model, loader, PMatDiag, **arguments).get_diag()
        diagonal = _unflatten(flat, model)
    if Approximation.KFAC in approximations:
        blocks = FIM(model, loader, PMatKFAC, **arguments).data
        kfac = {name: Kronecker(*blocks[_layer_id(name, layer)]) for name, layer in layers.items()}
    fisher = Fisher(diagonal=diagonal, kfac=kfac)
    require_finite(fisher, dict(model.named_parameters()))
    return fisher


def supported_layers(model: nn.Module, example: Tensor) -> tuple[dict[str, Layer], int]:
    """The layers of a network, and the number of its outputs, if nngeometry computes its Fisher correctly.

    Args:
        model: the network; only its shapes count.
        example: on the network's device, shape (1, ...).

    Raises:
        UnsupportedLayerError: a layer has no Fisher block, or nngeometry computes a wrong one.
    """
    layers = matrix_layers(model)
    for name, layer in layers.items():
        if isinstance(layer, nn.Conv2d) and (layer.padding_mode != "zeros" or isinstance(layer.padding, str)):
            raise UnsupportedLayerError(
                f"layer {name!r} is a Conv2d with padding={layer.padding!r} and padding_mode={layer.padding_mode!r}; "
                f"backend 'nngeometry' allows: numbers and 'zeros'"
            )
    seen = trace(model, layers, example)
    require_rows(layers, seen)
    return layers, seen.outputs.shape[1]


def _layer_id(name: str, layer: Layer) -> str:
    return f"{name}.{layer}"


def _unflatten(flat: Tensor, model: nn.Module) -> dict[str, Tensor]:
    """Cut a vector in the order of the parameters, which nngeometry shares: layer by layer, weight before bias."""
    parameters = dict(model.named_parameters())
    pieces = flat.split([parameter.numel() for parameter in parameters.values()])
    return {
        name: piece.view(parameter.shape) for (name, parameter), piece in zip(parameters.items(), pieces, strict=True)
    }
