"""The order of a network's layers and whose units each looks at, for methods that match hidden units.

Every weight is seen as a block of shape (units, inputs, places): one unit a row, one unit of the layer before (or one
input of the network) a column, and the places that such a column covers: the elements of a convolution's kernel, or
the pixels of a feature map that is flattened before a linear layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

from fedfisher_core.errors import UnsupportedLayerError
from fedfisher_core.models.spec import ModelSpec, Parameters

_TOLERANCE = 1e-9


@dataclass(frozen=True)
class ChainLayer:
    """One layer of a network whose layers follow one another.

    Args:
        name: of the module.
        units: its outputs: neurons or filters.
        inputs: the units of the layer before, or the network's inputs: channels or, flattened, pixels.
        places: numbers of a weight that each of them covers.
        bias: whether it has one.
    """

    name: str
    units: int
    inputs: int
    places: int
    bias: bool

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
def chain(spec: ModelSpec) -> tuple[ChainLayer, ...]:
    """List the layers of a network in their order.

    Args:
        spec: the network.

    Returns:
        Its layers, from the inputs to the outputs.

    Raises:
        UnsupportedLayerError: the layers do not simply follow one another, so that permuting the hidden units of one
            changes the network's function.
    """
    layers: list[ChainLayer] = []
    before = spec.channels
    for name, module in spec.skeleton().named_modules():
        if not isinstance(module, nn.Linear | nn.Conv2d):
            continue
        units, fan_in = module.weight.shape[:2]
        # A linear layer at the front looks at pixels; elsewhere at units, each with its pixels where maps are flat.
        inputs = fan_in if isinstance(module, nn.Conv2d) or not layers else before
        places = module.weight[0].numel() // inputs
        if fan_in % inputs or (layers and inputs != before):
            raise _no_chain(spec, name)
        layers.append(ChainLayer(name, units, inputs, places, module.bias is not None))
        before = units
    _check(spec, layers)
    return tuple(layers)


def permuted(parameters: Parameters, layers: Sequence[ChainLayer], permutations: Sequence[Tensor]) -> Parameters:
    """Put hidden units in another order without changing the network's function.

    Args:
        parameters: of the network.
        layers: its chain.
        permutations: for every layer but the last, which of its units comes at each position, shape (units,).

    Returns:
        The parameters of the same function.
    """
    result: Parameters = {}
    columns: Tensor | None = None
    for layer, rows in zip(layers, [*permutations, None], strict=True):
        weight = layer.blocks(parameters)
        weight = weight if columns is None else weight[:, columns]
        weight = weight if rows is None else weight[rows]
        result[f"{layer.name}.weight"] = weight.reshape(parameters[f"{layer.name}.weight"].shape)
        if layer.bias:
            bias = parameters[f"{layer.name}.bias"]
            result[f"{layer.name}.bias"] = bias if rows is None else bias[rows]
        columns = rows
    return {name: result[name] for name in parameters}


def _check(spec: ModelSpec, layers: Sequence[ChainLayer]) -> None:
    """Make sure that a permutation of each hidden layer by itself leaves the function as it is."""
    generator = torch.Generator().manual_seed(0)
    parameters = {name: tensor.double() for name, tensor in spec.initialise(generator).items()}
    inputs = torch.randn(2, spec.channels, spec.size, spec.size, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        expected = spec.load(parameters).eval()(inputs)
        for index, layer in enumerate(layers[:-1]):
            orders = [torch.arange(one.units) for one in layers[:-1]]
            orders[index] = orders[index].roll(1)
            found = spec.load(permuted(parameters, layers, orders)).eval()(inputs)
            if (found - expected).abs().max() > _TOLERANCE * expected.abs().max():
                raise _no_chain(spec, layer.name)


def _no_chain(spec: ModelSpec, layer: str) -> UnsupportedLayerError:
    return UnsupportedLayerError(
        f"model {spec.name!r}: the hidden units around layer {layer!r} are tied to other layers', as by a skip "
        f"connection; allowed: layers that follow one another"
    )
