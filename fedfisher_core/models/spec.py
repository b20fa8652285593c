"""What a network must know before it is built, and the registry of families."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Protocol, runtime_checkable

import torch
from torch import Size, Tensor, nn

import fedfisher_core.models
from fedfisher_core.errors import InputError, UnsupportedLayerError
from fedfisher_core.finite import is_finite
from fedfisher_core.layouts import Layout
from fedfisher_core.registry import Registry, import_submodules

Parameters = dict[str, Tensor]

BatchNormalisation = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm
"""What makes an example's outputs depend on the other examples of its batch."""


@dataclass(frozen=True)
class ModelSpec:
    """One network.

    Args:
        name: its family.
        inputs: what one example looks like to it.
        classes: number of outputs.
        bias: whether its layers have a bias.
        widths: units (or filters) of its hidden layers; empty for those of the family.
    """

    name: str
    inputs: Layout
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
            A module whose parameters, on the CPU, are not numbers.

        Raises:
            InputError: the family is unknown, or can't be built with these settings.
        """
        network = self.skeleton()
        owned = dict(network.named_parameters(remove_duplicate=False))
        blank = {id(one): nn.Parameter(torch.full(one.shape, torch.nan)) for one in owned.values()}
        # torch's own `to_empty` loads half a second of symbolic shapes.
        network.load_state_dict({name: blank[id(one)] for name, one in owned.items()}, strict=False, assign=True)
        return network

    def skeleton(self) -> nn.Module:
        """Build the network without memory for its weights, to look at its layers and shapes.

        Returns:
            A module on the meta device.

        Raises:
            InputError: the family is unknown, or can't be built with these settings.
        """
        with torch.device("meta"):
            return models.get(self.name)(self)

    def shapes(self) -> dict[str, Size]:
        """Name the parameters and their shapes.

        Raises:
            InputError: as for `skeleton`.
        """
        family: Callable[[ModelSpec], nn.Module] = models.get(self.name)
        return dict(_shapes(family, self))

    def learnt(self) -> frozenset[str]:
        """Name the parameters that gradients change; running statistics are none of them.

        Raises:
            InputError: as for `skeleton`.
        """
        return frozenset(name for name, one in self.skeleton().named_parameters() if one.requires_grad)

    def initialise(self, generator: torch.Generator) -> Parameters:
        """Draw initial weights: a layer that knows how draws its own, others get what torch gives them by default.

        Args:
            generator: draws them, layer by layer in the order of definition.

        Returns:
            The named parameters.

        Raises:
            UnsupportedLayerError: a layer normalises over the batch; a parameter belongs to a layer whose default is
                not known here and that does not initialise itself, or is left without a finite value; or the weights
                are not all that the network holds.
        """
        network = self.build()
        self._require_no_batches(network)
        with torch.no_grad():
            self._draw("", network, generator)
        for name, parameter in network.named_parameters():
            if not is_finite(parameter):
                raise UnsupportedLayerError(f"model {self.name!r}: its initialisation leaves {name!r} not finite")
        # Of the skeleton, as memory of its own for each weight would part those that are shared.
        self._require_parameters_only(self.skeleton())
        return parameters_of(network)

    def _draw(self, name: str, layer: nn.Module, generator: torch.Generator) -> None:
        """Draw the weights of a layer and of all that it is made of."""
        if isinstance(layer, Initialising):
            layer.initialise(generator)
            return
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.kaiming_uniform_(layer.weight, a=5**0.5, generator=generator)
            if layer.bias is not None:
                bound = layer.weight[0].numel() ** -0.5
                nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
        elif isinstance(layer, nn.Embedding):
            nn.init.normal_(layer.weight, generator=generator)
        elif isinstance(layer, nn.LayerNorm | nn.GroupNorm):
            for parameter, value in ((layer.weight, 1.0), (layer.bias, 0.0)):
                if parameter is not None:
                    nn.init.constant_(parameter, value)
        elif isinstance(layer, nn.GRU):
            for parameter in layer.parameters():
                nn.init.uniform_(parameter, -(layer.hidden_size**-0.5), layer.hidden_size**-0.5, generator=generator)
        elif any(True for _ in layer.parameters(recurse=False)):
            raise UnsupportedLayerError(
                f"model {self.name!r}: layer {name!r} has type {type(layer).__name__}; initial weights can be drawn "
                f"for Linear, Conv2d, Embedding, LayerNorm, GroupNorm and GRU only, or by a layer's own method "
                f"initialise(generator)"
            )
        for child, part in layer.named_children():
            self._draw(f"{name}.{child}" if name else child, part, generator)

    def _require_no_batches(self, network: nn.Module) -> None:
        """Refuse layers whose outputs depend on a batch, or on running statistics of batches, which no client sends."""
        for name, layer in network.named_modules():
            if isinstance(layer, BatchNormalisation):
                raise UnsupportedLayerError(
                    f"model {self.name!r}: layer {name!r} has type {type(layer).__name__}, whose statistics of batches "
                    f"no client sends; allowed: GroupNorm, LayerNorm or fedfisher_core.models.batch_norm.BatchNorm in "
                    f"its place"
                )

    def _require_parameters_only(self, network: nn.Module) -> None:
        """Refuse what neither clients send nor servers aggregate, and what would be sent twice."""
        for name, _ in network.named_buffers():
            raise UnsupportedLayerError(
                f"model {self.name!r}: {name!r} is a buffer, which no client sends; allowed: parameters only"
            )
        once = dict(network.named_parameters())
        for name, _ in network.named_parameters(remove_duplicate=False):
            if name not in once:
                raise UnsupportedLayerError(f"model {self.name!r}: {name!r} is shared; allowed: one name a parameter")

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


@cache
def _shapes(family: Callable[[ModelSpec], nn.Module], spec: ModelSpec) -> tuple[tuple[str, Size], ...]:
    # Every upload asks for them, and a skeleton takes a hundredth of a short client's training.
    with torch.device("meta"):
        return tuple((name, parameter.shape) for name, parameter in family(spec).named_parameters())


@runtime_checkable
class Initialising(Protocol):
    """A network, or a layer of one, that draws its own initial weights."""

    def initialise(self, generator: torch.Generator, /) -> None:
        """Draw all parameters, those of all parts included, from this generator alone; run without gradients."""


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
