"""Networks of one shape side by side, so that one call computes the outputs of all, each of its own inputs."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.errors import UnsupportedLayerError
from fedfisher_core.models.dropout import Dropout
from fedfisher_core.models.spec import ModelSpec


class StackedLinear(nn.Module):
    """Linear layers of several networks.

    Args:
        weight: of each, shape (networks, outputs, inputs).
        bias: of each, shape (networks, outputs); None without.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = None if bias is None else nn.Parameter(bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute outputs.

        Args:
            inputs: shape (networks * examples, ..., inputs), one network's after another's.

        Returns:
            Shape (networks * examples, ..., outputs).
        """
        apart = inputs.unflatten(0, (len(self.weight), -1))
        # The weights come first, so that their gradients lie in memory as they do.
        columns = apart.flatten(1, -2).transpose(1, 2)
        outputs = self.weight @ columns if self.bias is None else self.bias[..., None].baddbmm(self.weight, columns)
        return outputs.transpose(1, 2).unflatten(1, apart.shape[1:-1]).flatten(0, 1)


class StackedConv2d(nn.Module):
    """Convolutions of several networks.

    Args:
        layer: whose stride, padding, dilation and groups they have.
        weight: of each, shape (networks, filters, channels of a group, height, width).
        bias: of each, shape (networks, filters); None without.
    """

    def __init__(self, layer: nn.Conv2d, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = None if bias is None else nn.Parameter(bias)
        self._stride, self._padding, self._dilation = layer.stride, layer.padding, layer.dilation
        self._groups = layer.groups

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute maps.

        Args:
            inputs: shape (networks * examples, channels, height, width), one network's after another's.

        Returns:
            Shape (networks * examples, filters, height, width).
        """
        if inputs.is_cuda:
            return self.as_groups(inputs)
        # A call for each, as a processor takes longer for groups.
        apart, weights = inputs.unflatten(0, (len(self.weight), -1)).unbind(), self.weight.unbind()
        biases = [None] * len(weights) if self.bias is None else self.bias.unbind()
        return torch.cat([self._convolved(*one, self._groups) for one in zip(apart, weights, biases, strict=True)])

    def as_groups(self, inputs: Tensor) -> Tensor:
        """Compute the same maps by one call, with a group for each network, as suits a GPU, which is slow at calls.

        Args:
            inputs: as for `forward`.

        Returns:
            As `forward`.
        """
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
        spec: what one of them is.
        weights: of all, by the name of the parameter, shape (networks, *its own); they share memory with the result.

    Returns:
        A module that takes inputs of shape (networks * examples, ...), one network's after another's, and gives outputs
        of shape (networks * examples, ...). Its parameters are `weights`.

    Raises:
        UnsupportedLayerError: a layer can't be put beside others of its kind.
    """
    whole = nn.Sequential(spec.skeleton())
    for name, layer in list(whole[0].named_modules()):
        # All names begin with the place of the network in the whole, whose only layer it may be.
        parent, _, last = f"0.{name}".rstrip(".").rpartition(".")
        own = {one: weights[f"{name}.{one}" if name else one] for one, _ in layer.named_parameters(recurse=False)}
        trained = all(one.requires_grad for one in layer.parameters(recurse=False))
        if trained and type(layer) is nn.Linear:
            setattr(whole.get_submodule(parent), last, StackedLinear(own["weight"], own.get("bias")))
        elif trained and type(layer) is nn.Conv2d and layer.padding_mode == "zeros":
            setattr(whole.get_submodule(parent), last, StackedConv2d(layer, own["weight"], own.get("bias")))
        elif own or isinstance(layer, Dropout):
            raise UnsupportedLayerError(
                f"model {spec.name!r}: layer {name!r} has type {type(layer).__name__}, of which several can't be "
                "computed side by side; allowed: Linear and Conv2d that pads with zeros, neither of them frozen, "
                "and layers without weights and dropout"
            )
    return whole[0]


def require_stackable(spec: ModelSpec) -> None:
    """Check that networks can be put side by side.

    Args:
        spec: what one of them is.

    Raises:
        UnsupportedLayerError: a layer can't be; or the network reads the weights of its layers itself, leaves something
            to chance, or has outputs for an example that depend on others of its batch.
    """
    generator = torch.Generator().manual_seed(0)
    network = stack(spec, {name: torch.stack([one, one]) for name, one in spec.initialise(generator).items()}).train()
    inputs, others = spec.inputs.drawn(2 * 3, generator), spec.inputs.drawn(2 * 3, generator)
    # Each network beside one that is given something else.
    beside = torch.cat([inputs[:3], others[3:]]), torch.cat([others[:3], inputs[3:]])
    try:
        with torch.no_grad():
            outputs, first, last = (network(one) for one in (inputs, *beside))
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
