"""One forward pass that keeps what Fisher blocks are made of: each layer's inputs and the way back to its outputs."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge, saved_tensors_hooks

from fedfisher_core.errors import InputError, UnsupportedLayerError
from fedfisher_core.fisher.layers import FisherLayer
from fedfisher_core.models.batch_norm import BatchNorm


@dataclass(frozen=True)
class Trace:
    """What one forward pass leaves behind.

    Args:
        outputs: the model's outputs, shape (examples, outputs), with their graph.
        inputs: by layer, the inputs it saw.
        edges: by layer, the place in the graph where its outputs enter. Unlike the output tensors, it survives an
            operation that overwrites them, such as an in-place ReLU.
        output_shapes: by layer, the shape of its outputs, examples first.
    """

    outputs: Tensor
    inputs: dict[str, Tensor]
    edges: dict[str, GradientEdge]
    output_shapes: dict[str, torch.Size]


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put every module in evaluation mode for a while, and each back in the mode that it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def trace(model: nn.Module, layers: Mapping[str, FisherLayer], inputs: Tensor) -> Trace:
    """Run the model forward and record its layers.

    Args:
        model: the network.
        layers: the layers to record, by name.
        inputs: examples, shape (examples, ...), on the model's device.

    Returns:
        The recording; it keeps the graph alive.

    Raises:
        InputError: the outputs are not one row an example.
        UnsupportedLayerError: a layer is used never or twice, or sees inputs of a shape without Fisher blocks.
    """
    kept: dict[str, Tensor] = {}
    edges: dict[str, GradientEdge] = {}
    shapes: dict[str, torch.Size] = {}

    def record(name: str, layer: FisherLayer, arguments: tuple[Any, ...], output: Tensor) -> None:
        if name in edges:
            raise UnsupportedLayerError(f"layer {name!r} is used twice in one forward pass; allowed: once")
        _check_input(name, layer, arguments[0], len(inputs))
        kept[name] = arguments[0].detach()
        edges[name] = get_gradient_edge(output)
        shapes[name] = output.shape

    # Inputs that need a gradient give every layer a place in the graph, even if its parameters are frozen. Tokens have
    # none.
    inputs = inputs.detach().requires_grad_(inputs.is_floating_point())
    with ExitStack() as hooks, torch.enable_grad():
        for name, layer in layers.items():
            hooks.enter_context(layer.register_forward_hook(partial(record, name)))
        outputs = model(inputs)
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or len(outputs) != len(inputs):
        raise InputError(
            f"the model maps {len(inputs)} examples to {_describe(outputs)}; allowed: a tensor of shape "
            f"(examples, outputs)"
        )
    for name in layers:
        if name not in edges:
            raise UnsupportedLayerError(f"layer {name!r} is not used in the forward pass")
    return Trace(outputs, kept, edges, shapes)


def measure(model: nn.Module, layers: Mapping[str, FisherLayer], example: Tensor) -> tuple[Trace, int]:
    """Trace one example, and count the bytes that its graph keeps.

    Args:
        model: the network.
        layers: the layers to record, by name.
        example: shape (1, ...), on the model's device.

    Returns:
        The recording, whose graph can't be run backward, and the bytes.
    """
    own = {parameter.data_ptr() for parameter in model.parameters()}
    # The storages themselves: one that went would leave its address to the next, which then counted for both.
    kept: dict[int, torch.UntypedStorage] = {}

    def record(tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage

    def refuse(_: None) -> Tensor:
        raise AssertionError("a measured graph keeps nothing to run backward with")

    # A node that held its own output, which holds the node, would never go.
    with saved_tensors_hooks(record, refuse):
        # A copy, so that the storage behind a slice of the data isn't counted.
        seen = trace(model, layers, example.clone())
    return seen, sum(storage.nbytes() for storage in kept.values())


def backpropagate(seen: Trace, vectors: Tensor, *, last: bool) -> dict[str, Tensor]:
    """Run the recorded pass backward.

    Args:
        seen: the recording.
        vectors: one at the outputs of each example, shape (examples, outputs).
        last: whether the recording's graph may go.

    Returns:
        By layer, the gradients at its outputs; zero where the model's outputs don't depend on them.
    """
    edges = list(seen.edges.values())
    # The same to the last bit, but vectors as such would have torch load half a second of symbolic shapes.
    with torch.enable_grad():
        at_outputs = (seen.outputs * vectors).sum()
    found = torch.autograd.grad(at_outputs, edges, retain_graph=not last, allow_unused=True)
    return {
        name: vectors.new_zeros(seen.output_shapes[name]) if gradient is None else gradient
        for name, gradient in zip(seen.edges, found, strict=True)
    }


def require_rows(layers: Mapping[str, FisherLayer], seen: Trace) -> None:
    """Refuse linear layers that see more than one row an example.

    Args:
        layers: that were recorded, by name.
        seen: the recording.

    Raises:
        UnsupportedLayerError: a linear layer sees sequences.
    """
    for name, layer in layers.items():
        if isinstance(layer, nn.Linear) and seen.inputs[name].ndim != 2:
            raise _unknown_inputs(name, layer, seen.inputs[name], len(seen.outputs), "2")


def _check_input(name: str, layer: FisherLayer, inputs: Tensor, examples: int) -> None:
    """Refuse inputs that are not one row, one sequence of rows or tokens, or one stack of maps an example."""
    allowed: tuple[int, ...] = (2, 3)
    if isinstance(layer, nn.Conv2d):
        allowed = (4,)
    elif isinstance(layer, nn.Embedding):
        allowed = (2,)
    elif isinstance(layer, nn.LayerNorm):
        # The features' dimensions, behind those of an example or of its places.
        allowed = (1 + len(layer.normalized_shape), 2 + len(layer.normalized_shape))
    elif isinstance(layer, nn.GroupNorm | BatchNorm):
        allowed = (2, 3, 4, 5)
    if inputs.ndim not in allowed or len(inputs) != examples:
        raise _unknown_inputs(name, layer, inputs, examples, " or ".join(map(str, allowed)))


def _unknown_inputs(name: str, layer: nn.Module, inputs: Tensor, examples: int, allowed: str) -> UnsupportedLayerError:
    return UnsupportedLayerError(
        f"layer {name!r}, a {type(layer).__name__}, sees inputs of shape {tuple(inputs.shape)} for {examples} "
        f"examples; allowed: {allowed} dimensions, examples first"
    )


def _describe(outputs: object) -> str:
    """An output's shape, or its type where it has none."""
    return f"shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else f"a {type(outputs).__name__}"
