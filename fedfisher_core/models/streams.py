"""Streams: the hidden units that layers of a network share, for methods that match the units of several networks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, fx, nn

from fedfisher_core.engine.errors import UnsupportedLayerError
from fedfisher_core.models.layers import max_pool
from fedfisher_core.models.spec import ModelSpec, Parameters, typed

_TOLERANCE = 1e-9


@dataclass(frozen=True)
class StreamLayer:
    """One layer of a network, and the streams that it connects.

    Args:
        units: number of its outputs: neurons or filters.
        inputs: number of the units that it reads, or of the network's inputs: channels or, flattened, pixels.
        places: elements of a weight that belong to one unit and one input.
        reads: the stream that it reads; None for the network's inputs, whose order is fixed.
        writes: the stream to which it adds; None for the network's outputs, whose order is fixed.
    """

    name: str
    units: int
    inputs: int
    places: int
    bias: bool
    reads: int | None
    writes: int | None

    def blocks(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """View the layer's weight as shape (units, inputs, places).

        The sizes are read off the weight, so the parameters may be those of a network of the family with other widths.
        """
        weight = parameters[f"{self.name}.weight"]
        return weight.reshape(weight.shape[0], -1, self.places)


@lru_cache
def streams(spec: ModelSpec) -> tuple[StreamLayer, ...]:
    """List the layers of a network in the order in which they run, with the streams between them.

    Streams count from 0 in the order in which they are first written.

    Raises:
        UnsupportedLayerError: the network's operations can't be traced, or reordering the units of a stream would
            change its function.
    """
    # In training mode, dropout would depend on more than its inputs.
    network = spec.skeleton().eval()
    modules = {name: module for name, module in network.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)}
    for name, module in network.named_modules():
        if name not in modules and any(True for _ in module.parameters(recurse=False)):
            raise _no_streams(spec, typed(name, module))
    groups, nodes = _connect(spec, network, modules)
    fixed = {groups.find(node) for node in nodes if node.op in ("placeholder", "output")}
    numbers: dict[fx.Node, int] = {}
    units: dict[int, int] = {}
    layers: list[StreamLayer] = []
    for node in nodes:
        if node.op != "call_module" or node.target not in modules:
            continue
        name = str(node.target)
        weight = modules[name].weight
        before, after = groups.find(node.all_input_nodes[0]), groups.find(node)
        if before not in fixed and before not in numbers:
            raise _no_streams(spec, f"layer {name!r} looks at constants")
        reads = None if before in fixed else numbers[before]
        writes = None if after in fixed else numbers.setdefault(after, len(numbers))
        inputs = weight.shape[1] if reads is None else units[reads]
        if writes is not None and units.setdefault(writes, len(weight)) != len(weight):
            raise _no_streams(spec, f"layer {name!r} adds {len(weight)} units to {units[writes]}")
        if weight.shape[1] % inputs or (weight.ndim == 4 and weight.shape[1] != inputs):
            raise _no_streams(spec, f"layer {name!r} looks at {weight.shape[1]} numbers of {inputs} units")
        places = weight[0].numel() // inputs
        layers.append(StreamLayer(name, len(weight), inputs, places, modules[name].bias is not None, reads, writes))
    if sorted(layer.name for layer in layers) != sorted(modules):
        raise _no_streams(spec, "each layer must run exactly once")
    _check(spec, layers)
    return tuple(layers)


def reordered(parameters: Parameters, layers: Sequence[StreamLayer], orders: Sequence[Tensor]) -> Parameters:
    """Put the units of every stream in another order, which leaves the network's function unchanged.

    Args:
        orders: for each stream, the unit at each new position, shape (units,).
    """
    result = dict(parameters)
    for layer in layers:
        key = f"{layer.name}.weight"
        blocks = layer.blocks(parameters)
        blocks = blocks if layer.reads is None else blocks[:, orders[layer.reads]]
        blocks = blocks if layer.writes is None else blocks[orders[layer.writes]]
        result[key] = blocks.reshape(parameters[key].shape)
        if layer.bias and layer.writes is not None:
            result[f"{layer.name}.bias"] = parameters[f"{layer.name}.bias"][orders[layer.writes]]
    return result


def stream_units(layers: Sequence[StreamLayer]) -> list[int]:
    """Count the units of every stream, in the streams' order."""
    units = {layer.writes: layer.units for layer in layers if layer.writes is not None}
    return [units[stream] for stream in sorted(units)]


class _Groups:
    """Disjoint sets of nodes whose units belong together."""

    def __init__(self) -> None:
        self._parents: dict[fx.Node, fx.Node] = {}

    def find(self, node: fx.Node) -> fx.Node:
        while (parent := self._parents.get(node, node)) is not node:
            node = parent
        return node

    def join(self, one: fx.Node, other: fx.Node) -> None:
        self._parents[self.find(one)] = self.find(other)


def _connect(spec: ModelSpec, network: nn.Module, modules: Mapping[str, nn.Module]) -> tuple[_Groups, list[fx.Node]]:
    """Trace the units through the network: a layer makes new ones, any other operation treats each unit separately."""
    try:
        nodes = list(fx.Tracer(autowrap_functions=(max_pool,)).trace(network).nodes)
    except (fx.proxy.TraceError, TypeError, RuntimeError) as error:
        raise _no_streams(spec, f"its operations depend on its inputs ({error})") from error
    groups = _Groups()
    for node in nodes:
        if node.op == "call_module" and node.target in modules:
            continue
        for source in node.all_input_nodes:
            groups.join(node, source)
    return groups, nodes


def _check(spec: ModelSpec, layers: Sequence[StreamLayer]) -> None:
    """Check that new orders of the streams leave the function unchanged.

    All streams are reordered at once, because `_connect` has joined the streams that an operation mixes.
    """
    generator = torch.Generator().manual_seed(0)
    parameters = {name: tensor.double() for name, tensor in spec.initialise(generator).items()}
    inputs = spec.inputs.drawn(2, generator)
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    orders = [torch.arange(units).roll(1) for units in stream_units(layers)]
    try:
        with torch.no_grad():
            expected = spec.load(parameters).eval()(inputs)
            found = spec.load(reordered(parameters, layers, orders)).eval()(inputs)
    except RuntimeError as error:
        raise _no_streams(spec, f"it can't run in double precision ({error})") from error
    if (found - expected).abs().max() > _TOLERANCE * expected.abs().max():
        raise _no_streams(spec, "its function depends on the order of its hidden units")


def _no_streams(spec: ModelSpec, reason: str) -> UnsupportedLayerError:
    return UnsupportedLayerError(
        f"model {spec.name!r}: {reason}; allowed: Linear and Conv2d layers, and between them operations that treat all "
        f"units alike"
    )


@lru_cache
def chain(spec: ModelSpec) -> tuple[StreamLayer, ...]:
    """List the layers of a network in their order, from the inputs to the outputs.

    Raises:
        UnsupportedLayerError: the layers do not form a chain, for instance because of a skip connection.
    """
    layers = streams(spec)
    for index, layer in enumerate(layers):
        before = None if index == 0 else index - 1
        after = None if index == len(layers) - 1 else index
        if (layer.reads, layer.writes) != (before, after):
            raise UnsupportedLayerError(
                f"model {spec.name!r}: the hidden units around layer {layer.name!r} are tied to other layers', as by a "
                f"skip connection; allowed: layers that follow one another"
            )
    return layers
