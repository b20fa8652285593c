"""One forward pass that records what Fisher blocks need: each layer's inputs, and its outputs' edge in the graph.

A parameter that no layer holds has a forward pass of its own, in which each example has a copy of the parameter.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge, saved_tensors_hooks
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedfisher_core.engine.errors import InputError, UnsupportedLayerError, in_one_line
from fedfisher_core.fisher.layers import FisherLayer
from fedfisher_core.models.batch_norm import BatchNorm
from fedfisher_core.models.layers import Padding


@dataclass(frozen=True)
class Trace:
    """The record of one forward pass.

    Args:
        outputs: the model's outputs, shape (examples, outputs), with their graph.
        inputs: by layer, and by `Padding`.
        edges: by layer, where its outputs enter the graph. Unlike the output tensors, an edge survives an operation
            that overwrites them, such as an in-place ReLU.
        output_shapes: by layer, examples first.
        copies: by parameter that no layer holds, a copy for each example.
        outputs_of_copies: the model's outputs as functions of the copies; the outputs themselves without copies.
    """

    outputs: Tensor
    inputs: dict[str, Tensor]
    edges: dict[str, GradientEdge]
    output_shapes: dict[str, torch.Size]
    copies: dict[str, Tensor]
    outputs_of_copies: Tensor


def paddings_of(model: nn.Module) -> dict[str, Padding]:
    """The parts of a model that name the padding of its tokens in the place of an embedding."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Padding)}


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put every module in evaluation mode, and afterwards back in its former mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def trace(
    model: nn.Module,
    layers: Mapping[str, FisherLayer],
    inputs: Tensor,
    *,
    own: Mapping[str, nn.Parameter] = MappingProxyType({}),
) -> Trace:
    """Run the model forward and record its layers; the record keeps the graph alive.

    Args:
        inputs: examples, shape (examples, ...), on the model's device.
        own: parameters that no layer holds, of which each example gets a copy.

    Raises:
        InputError: the outputs are not one row an example.
        UnsupportedLayerError: a layer is used never or twice, or sees inputs of a shape without Fisher blocks; one of
            its parameters that have a gradient is used twice; or the model can't be run with a parameter for each
            example.
    """
    kept: dict[str, Tensor] = {}
    edges: dict[str, GradientEdge] = {}
    shapes: dict[str, torch.Size] = {}
    repeated: list[str] = []

    def repeat(name: str, _: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        # Positions that are looked up once for all examples have no gradient of each of them.
        require_by_position(name, arguments)
        positions = arguments[0]
        if positions.ndim == 1 or (positions.ndim == 2 and len(positions) == 1 < len(inputs)):
            repeated.append(name)
            positions = positions.expand(len(inputs), positions.shape[-1])
        return (positions, *arguments[1:])

    def record(name: str, layer: FisherLayer, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
        if name in edges:
            raise UnsupportedLayerError(f"layer {name!r} is used twice in one forward pass; allowed: once")
        require_by_position(name, arguments)
        _check_input(name, layer, arguments[0], len(inputs))
        kept[name] = arguments[0].detach()
        shapes[name] = output.shape
        if output.requires_grad:
            edges[name] = get_gradient_edge(output)
            return output
        if any(one.requires_grad for one in layer.parameters(recurse=False)):
            raise UnsupportedLayerError(
                f"layer {name!r} has weights that are trained, and outputs without a gradient; allowed: a forward pass "
                "without torch.no_grad, or weights that are frozen"
            )
        # Of a frozen layer on tokens, which have no gradient, or under torch.no_grad. What is added to its outputs in
        # place is added to a copy.
        leaf = output.detach().requires_grad_()
        edges[name] = get_gradient_edge(leaf)
        with torch.enable_grad():
            return leaf.clone()

    def keep(name: str, _: nn.Module, arguments: tuple[Any, ...]) -> None:
        kept[name] = arguments[0]

    # Inputs that need a gradient put every layer into the graph, even if its parameters are frozen.
    inputs = inputs.detach().requires_grad_(inputs.is_floating_point())
    with ExitStack() as hooks, torch.enable_grad():
        for name, layer in layers.items():
            if isinstance(layer, nn.Embedding):
                hooks.enter_context(layer.register_forward_pre_hook(partial(repeat, name)))
            hooks.enter_context(layer.register_forward_hook(partial(record, name)))
        for name, padding in paddings_of(model).items():
            hooks.enter_context(padding.register_forward_pre_hook(partial(keep, name)))
        try:
            outputs = model(inputs)
        except RuntimeError as error:
            if repeated:
                raise _no_repetition(repeated[0], error) from error
            raise
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or len(outputs) != len(inputs):
        raise InputError(
            f"the model maps {len(inputs)} examples to {_describe(outputs)}; allowed: a tensor of shape "
            f"(examples, outputs)"
        )
    uses = uses_in(outputs)
    for name, layer in layers.items():
        if name not in edges:
            raise never_called(name)
        for key, parameter in layer.named_parameters(recurse=False):
            if uses[id(parameter)] > 1:
                raise UnsupportedLayerError(
                    f"layer {name!r}: its {key} is used outside the layer too; allowed: in the layer alone"
                )
    if repeated and not outputs.is_meta:
        _require_same(model, inputs[:2], outputs[:2], repeated[0])
    copies = {name: _copies(one, len(inputs)) for name, one in own.items()}
    return Trace(
        outputs=outputs,
        inputs=kept,
        edges=edges,
        output_shapes=shapes,
        copies=copies,
        outputs_of_copies=_outputs_of_copies(model, inputs.detach(), copies) if copies else outputs,
    )


def require_by_position(name: str, arguments: Sequence[Any]) -> None:
    """Refuse a layer that gets its inputs by keyword, where torch's hooks do not show them."""
    if not arguments:
        raise UnsupportedLayerError(f"layer {name!r} gets its inputs by keyword; allowed: by position")


def never_called(name: str) -> UnsupportedLayerError:
    """Make the error of a layer that a forward pass does not call, though the network may read its weights."""
    return UnsupportedLayerError(
        f"layer {name!r} is never called in the forward pass; allowed: layers that are called as modules; remove one "
        "that serves nothing"
    )


def uses_in(outputs: Tensor) -> Counter[int]:
    """How often the graph of some outputs reads each parameter that has a gradient, by the parameter's id."""
    counts: Counter[int] = Counter()
    ahead = [outputs.grad_fn]
    seen = set(ahead)
    while ahead:
        node = ahead.pop()
        for following, _ in () if node is None else node.next_functions:
            if (parameter := getattr(following, "variable", None)) is not None:
                counts[id(parameter)] += 1
            elif following not in seen:
                seen.add(following)
                ahead.append(following)
    return counts


def _require_same(model: nn.Module, inputs: Tensor, outputs: Tensor, name: str) -> None:
    """Refuse a layer whose positions mean something else when each example looks them up."""
    try:
        with torch.no_grad():
            expected = model(inputs)
    except RuntimeError as error:
        raise _no_repetition(name, error) from error
    close = 1e-3 * float(outputs.detach().abs().max())
    if expected.shape != outputs.shape or not torch.allclose(expected, outputs, atol=close, equal_nan=True):
        raise _no_repetition(name, "its outputs are others then")


def _no_repetition(name: str, reason: RuntimeError | str) -> UnsupportedLayerError:
    why = reason if isinstance(reason, str) else in_one_line(reason)
    return UnsupportedLayerError(
        f"layer {name!r}, an Embedding, sees positions once for all examples, and the network does not allow them once "
        f"for each ({why}); allowed: 2 dimensions, examples first"
    )


def _copies(parameter: nn.Parameter, examples: int) -> Tensor:
    return parameter.detach().expand(examples, *parameter.shape).clone().requires_grad_()


def _outputs_of_copies(model: nn.Module, inputs: Tensor, copies: Mapping[str, Tensor]) -> Tensor:
    """Run each example with its own copies of parameters, shape (examples, outputs)."""

    def run(example: Tensor, own: dict[str, Tensor]) -> Tensor:
        outputs: Tensor = functional_call(model, own, (example[None],))
        return outputs[0]

    try:
        # Fused attention has no rule for examples with parameters of their own, and would run one after another.
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
            outputs: Tensor = vmap(run)(inputs, dict(copies))
            return outputs
    except RuntimeError as error:
        name = next(iter(copies))
        raise UnsupportedLayerError(
            f"parameter {name!r} is in no layer of torch, and the model can't be run with one for each example: "
            f"{in_one_line(error)}"
        ) from error


def measure(
    model: nn.Module,
    layers: Mapping[str, FisherLayer],
    example: Tensor,
    *,
    own: Mapping[str, nn.Parameter] = MappingProxyType({}),
) -> tuple[Trace, int]:
    """Trace one example of shape (1, ...), and count the bytes that its graph keeps.

    The graph of this record cannot be run backward.
    """
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    # Storages are kept alive: otherwise a new one could get the address of a released one, and would not be counted.
    kept: dict[int, torch.UntypedStorage] = {}

    def record(tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage

    def refuse(_: None) -> Tensor:
        raise AssertionError("a measured graph keeps nothing to run backward with")

    # Nothing is packed: a node that held its own output, which holds the node, would never be released.
    with saved_tensors_hooks(record, refuse):
        # A copy, so that the storage behind a slice of the data is not counted.
        seen = trace(model, layers, example.clone(), own=own)
    return seen, sum(storage.nbytes() for storage in kept.values())


def backpropagate(seen: Trace, vectors: Tensor, *, last: bool) -> dict[str, Tensor]:
    """Run the recorded pass backward.

    Args:
        vectors: one at the outputs of each example, shape (examples, outputs).
        last: whether the graph may be released.

    Returns:
        By layer, the gradients at its outputs, and by parameter those of its copies; zero if the model's outputs do not
        depend on them.
    """
    shapes = seen.output_shapes | {name: copy.shape for name, copy in seen.copies.items()}
    # Passing the vectors to `grad` gives the same bits, but makes torch load symbolic shapes for half a second.
    with torch.enable_grad():
        at_outputs = (seen.outputs * vectors).sum()
        if seen.copies:
            at_outputs = at_outputs + (seen.outputs_of_copies * vectors).sum()
    wanted: list[Any] = [*seen.edges.values(), *seen.copies.values()]
    found = torch.autograd.grad(at_outputs, wanted, retain_graph=not last, allow_unused=True)
    return {
        name: vectors.new_zeros(shape) if gradient is None else gradient
        for (name, shape), gradient in zip(shapes.items(), found, strict=True)
    }


def require_rows(layers: Mapping[str, FisherLayer], seen: Trace) -> None:
    """Refuse linear layers that see more than one row an example, such as a sequence, by an UnsupportedLayerError."""
    for name, layer in layers.items():
        if isinstance(layer, nn.Linear) and seen.inputs[name].ndim != 2:
            raise _unknown_inputs(name, layer, seen.inputs[name], len(seen.outputs), "2")


def _check_input(name: str, layer: FisherLayer, inputs: Tensor, examples: int) -> None:
    """Refuse inputs that are not rows, tokens, or one stack of maps an example."""
    allowed: tuple[int, ...] = (2, 3, 4)
    if isinstance(layer, nn.Conv2d):
        allowed = (4,)
    elif isinstance(layer, nn.Embedding):
        allowed = (2,)
    elif isinstance(layer, nn.LayerNorm | nn.RMSNorm):
        # The features' dimensions come after that of the examples, or after examples and positions.
        allowed = tuple(count + len(layer.normalized_shape) for count in (1, 2, 3))
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
    return f"shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else f"a {type(outputs).__name__}"
