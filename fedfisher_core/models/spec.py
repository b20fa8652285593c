"""What a network must know before it is built, and the registry of families."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

import fedfisher_core.models
from fedfisher_core.errors import InputError, UnsupportedLayerError
from fedfisher_core.registry import Registry, import_submodules

Parameters = dict[str, Tensor]


@dataclass(frozen=True)
class ModelSpec:
    """One network.

    Args:
        name: its family.
        channels: of the input images.
        size: their height and width.
        classes: number of outputs.
        bias: whether its layers have a bias.
        widths: units (or filters) of its hidden layers; empty for those of the family.
    """

    name: str
    channels: int
    size: int
    classes: int
    bias: bool = False
    widths: tuple[int, ...] = ()

    def widths_or(self, default: tuple[int, ...]) -> tuple[int, ...]:
        """Choose the widths of the hidden layers.

        Args:
            default: those of the family.

        Returns:
            The chosen widths, as many as the default has.

        Raises:
            InputError: their number is wrong, or one is not positive.
        """
        if not self.widths:
            return default
        if len(self.widths) != len(default) or min(self.widths) < 1:
            raise InputError(f"model {self.name!r}: widths={self.widths}; allowed: {len(default)} positive numbers")
        return self.widths

    def build(self) -> nn.Module:
        """Build the network without initialising its weights.

        Returns:
            A module on the CPU whose parameters hold arbitrary numbers.

        Raises:
            InputError: the family is unknown, or can't be built with these settings.
        """
        return self.skeleton().to_empty(device="cpu")

    def skeleton(self) -> nn.Module:
        """Build the network without memory for its weights, to look at its layers and shapes.

        Returns:
            A module on the meta device.

        Raises:
            InputError: the family is unknown, or can't be built with these settings.
        """
        with torch.device("meta"):
            return models.get(self.name)(self)

    def initialise(self, generator: torch.Generator) -> Parameters:
        """Draw initial weights as torch's layers do by default.

        Args:
            generator: draws them, layer by layer.

        Returns:
            The named parameters.

        Raises:
            UnsupportedLayerError: a parameter belongs to another kind of layer than Linear and Conv2d.
        """
        network = self.build()
        for name, module in network.named_modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight, a=5**0.5, generator=generator)
                if module.bias is not None:
                    bound = module.weight[0].numel() ** -0.5
                    nn.init.uniform_(module.bias, -bound, bound, generator=generator)
            elif any(True for _ in module.parameters(recurse=False)):
                raise UnsupportedLayerError(
                    f"model {self.name!r}: layer {name!r} is a {type(module).__name__}; initial weights can be drawn "
                    f"for Linear and Conv2d only"
                )
        return parameters_of(network)

    def load(self, parameters: Mapping[str, Tensor]) -> nn.Module:
        """Build the network with given weights.

        Args:
            parameters: named as the network's own.

        Returns:
            The network, on the parameters' device.
        """
        network = self.skeleton()
        owned = {name: nn.Parameter(tensor.detach().clone()) for name, tensor in parameters.items()}
        network.load_state_dict(owned, assign=True)
        return network


class Family(Protocol):
    """Builds a network from its specification."""

    def __call__(self, spec: ModelSpec, /) -> nn.Module:
        """Build the network."""


def model(name: str) -> Callable[[Family], Family]:
    """Register a family of networks.

    Args:
        name: its name in the settings.

    Returns:
        A decorator that leaves the family as it is.
    """

    def register(family: Family) -> Family:
        models.add(name, family)
        return family

    return register


def parameters_of(network: nn.Module) -> Parameters:
    """Copy a network's parameters.

    Args:
        network: the network.

    Returns:
        Its named parameters, detached.
    """
    return {name: parameter.detach().clone() for name, parameter in network.named_parameters()}


models: Registry[Family] = Registry(
    noun="model", group="fedfisher.models", builtin=lambda: import_submodules(fedfisher_core.models)
)
