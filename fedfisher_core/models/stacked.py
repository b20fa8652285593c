"""Networks of one shape side by side: one call computes the outputs of all, each on its own inputs."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.engine.errors import UnsupportedLayerError
from fedfisher_core.models.layers import Dropout
from fedfisher_core.models.spec import ModelSpec, typed


class StackedLinear(nn.Module):
    """Linear layers of several networks.

    Args:
        weight: shape (networks, outputs, inputs).
        bias: shape (networks, outputs); None without.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = None if bias is None else nn.Parameter(bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute outputs, shape (networks * examples, ..., outputs).

        Args:
            inputs: shape (networks * examples, ..., inputs), network by network.
        """
        apart = inputs.unflatten(0, (len(self.weight), -1))
        # The weights come first, so that their gradients have the same memory layout.
        columns = apart.flatten(1, -2).transpose(1, 2)
        outputs = self.weight @ columns if self.bias is None else self.bias[..., None].baddbmm(self.weight, columns)
        return outputs.transpose(1, 2).unflatten(1, apart.shape[1:-1]).flatten(0, 1)


class StackedConv2d(nn.Module):
    """Convolutions of several networks.

    Args:
        layer: has their stride, padding, dilation and groups.
        weight: shape (networks, filters, channels of a group, height, width).
        bias: shape (networks, filters); None without.
    """

    def __init__(self, layer: nn.Conv2d, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = None if bias is None else nn.Parameter(bias)
        self._stride, self._padding, self._dilation = layer.stride, layer.padding, layer.dilation
        self._groups = layer.groups

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute maps, shape (networks * examples, filters, height, width).

        Args:
            inputs: shape (networks * examples, channels, height, width), network by network.
        """
        if inputs.is_cuda:
            return self.as_groups(inputs)
        # One call for each network, as a CPU takes longer for groups.
        apart, weights = inputs.unflatten(0, (len(self.weight), -1)).unbind(), self.weight.unbind()
        biases = [None] * len(weights) if self.bias is None else self.bias.unbind()
        return torch.cat([self._convolved(*one, self._groups) for one in zip(apart, weights, biases, strict=True)])

    def as_groups(self, inputs: Tensor) -> Tensor:
        """Compute the same as `forward` by one call, with a group for each network: on a GPU, calls are slow."""
        networks = len(self.weight)
        maps = self._convolved(
            inputs.unflatten(0, (networks, -1)).transpose(0, 1).flatten(1, 2),
            self.weight.flatten(0, 1),
            None if self.bias is None else self.bias.flatten(),
            networks * self._groups,
        )
        return maps.unflatten(1, (networks, -1)).transpose(0, 1).flatten(0, 1)

    def _convolved(self, inputs: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> Tensor:
        return functional.conv2d(inputs, weight, bias, self._stride, self._padding, self._dilation, groups)


def stack(spec: ModelSpec, weights: Mapping[str, Tensor]) -> nn.Module:
    """Build networks side by side.

    Args:
        weights: of all, by the name of the parameter, shape (networks, *its own).

    Returns:
        A module that maps inputs of shape (networks * examples, ...), network by network, to outputs of shape
        (networks * examples, ...). Its parameters share memory with `weights`.

    Raises:
        UnsupportedLayerError: a layer can't be stacked.
    """
    whole = nn.Sequential(spec.skeleton())
    for name, layer in list(whole[0].named_modules()):
        # All names begin with the network's name in `whole`, as the network may be a single layer.
        parent, _, last = f"0.{name}".rstrip(".").rpartition(".")
        own = {one: weights[f"{name}.{one}" if name else one] for one, _ in layer.named_parameters(recurse=False)}
        trained = all(one.requires_grad for one in layer.parameters(recurse=False))
        if trained and type(layer) is nn.Linear:
            setattr(whole.get_submodule(parent), last, StackedLinear(own["weight"], own.get("bias")))
        elif trained and type(layer) is nn.Conv2d and layer.padding_mode == "zeros":
            setattr(whole.get_submodule(parent), last, StackedConv2d(layer, own["weight"], own.get("bias")))
        elif own or isinstance(layer, Dropout):
            raise UnsupportedLayerError(
                f"model {spec.name!r}: {typed(name, layer)}, of which several can't be computed side by side; allowed: "
                "Linear and Conv2d that pads with zeros, neither of them frozen, and layers without weights and dropout"
            )
    return whole[0]


def require_stackable(spec: ModelSpec) -> None:
    """Check that networks can be put side by side.

    Raises:
        UnsupportedLayerError: a layer can't be stacked; or the network reads the weights of its layers itself, is
            random, or has outputs for an example that depend on others of its batch.
    """
    generator = torch.Generator().manual_seed(0)
    network = stack(spec, {name: torch.stack([one, one]) for name, one in spec.initialise(generator).items()}).train()
    inputs, others = spec.inputs.drawn(2 * 3, generator), spec.inputs.drawn(2 * 3, generator)
    # In each of these, one network has other inputs.
    extra = torch.cat([inputs[:3], others[3:]]), torch.cat([others[:3], inputs[3:]])
    try:
        with torch.no_grad():
            outputs, first, last = (network(one) for one in (inputs, *extra))
    except RuntimeError as error:
        raise UnsupportedLayerError(
            f"model {spec.name!r} can't be computed side by side with others: {error}"
        ) from error
    if outputs.shape != (2 * 3, spec.classes):
        raise UnsupportedLayerError(
            f"model {spec.name!r} has outputs of shape {tuple(outputs.shape)} for three examples of each of two "
            f"networks; allowed: {(2 * 3, spec.classes)}"
        )
    if not torch.equal(outputs, torch.cat([first[:3], last[3:]])):
        raise UnsupportedLayerError(
            f"model {spec.name!r} can't be computed side by side with others: its outputs for an example depend on "
            "chance or on other examples"
        )
