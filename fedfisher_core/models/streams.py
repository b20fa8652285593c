"""Which layers of a network share hidden units, for methods that match the units of networks with skip connections.

A stream is a set of hidden units that can be put in another order together, and only together: those of one layer
where layers follow one another; where outputs of several layers are added, as by a skip connection, those of all of
these layers. A residual network has one stream for each group of blocks, and one inside each block.

Every weight is seen as a block of shape (units, inputs, places): one unit a row, one unit of what the layer reads (or
one input of the network) a column, and the places that such a column covers: the elements of a convolution's kernel,
or the pixels of a feature map that is flattened before a linear layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, fx, nn

from fedfisher_core.errors import UnsupportedLayerError
from fedfisher_core.models.pooling import max_pool
from fedfisher_core.models.spec import ModelSpec, Parameters

_TOLERANCE = 1e-9


@dataclass(frozen=True)
class StreamLayer:
    """One layer of a network, and which streams it connects.

    Args:
        name: of the module.
        units: its outputs: neurons or filters.
        inputs: the units that it reads, or the network's inputs: channels or, flattened, pixels.
        places: numbers of a weight that each of them covers.
        bias: whether it has one.
        reads: the stream whose units it looks at; None where their order is fixed: the network's inputs.
        writes: the stream that it adds to; None where the order is fixed: the network's outputs.
    """

    name: str
    units: int
    inputs: int
    places: int
    bias: bool
    reads: int | None
    writes: int | None

    def blocks(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """View the layer's weight as shape (units, inputs, places); the sizes are read off the weight itself.

        Args:
            parameters: of this network, or of one of the same family with other widths.

        Returns:
            A view of the weight.
        """
        weight = parameters[f"{self.name}.weight"]
        return weight.reshape(weight.shape[0], -1, self.places)


@lru_cache
def streams(spec: ModelSpec) -> tuple[StreamLayer, ...]:
    """List the layers of a network in the order in which they run, with the streams between them.

    Args:
        spec: the network.

    Returns:
        Its layers. Streams count from 0 in the order in which they are first written.

    Raises:
        UnsupportedLayerError: the network's operations can't be followed, or reordering the units of a stream would
            change its function.
    """
    # In training, dropout would depend on more than its inputs.
    network = spec.skeleton().eval()
    modules = {name: module for name, module in network.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)}
    for name, module in network.named_modules():
        if name not in modules and any(True for _ in module.parameters(recurse=False)):
            raise _no_streams(spec, f"layer {name!r} has type {type(module).__name__}")
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
    """Put the units of every stream in another order without changing the network's function.

    Args:
        parameters: of the network.
        layers: those of `streams`.
        orders: for every stream, which of its units comes at each position, shape (units,).

    Returns:
        The parameters of the same function.
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
    """Follow the units through the network: a layer makes new ones, and whatever else happens happens to each."""
    try:
        nodes = list(fx.Tracer(autowrap_functions=(max_pool,)).trace(network).nodes)
    except (fx.proxy.TraceError, TypeError) as error:
        raise _no_streams(spec, f"its operations depend on its inputs ({error})") from error
    groups = _Groups()
    for node in nodes:
        if node.op == "call_module" and node.target in modules:
            continue
        for source in node.all_input_nodes:
            groups.join(node, source)
    return groups, nodes


def _check(spec: ModelSpec, layers: Sequence[StreamLayer]) -> None:
    """Make sure that new orders of the streams leave the function as it is.

    All at once, as whatever takes units of two streams would have joined them.
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
