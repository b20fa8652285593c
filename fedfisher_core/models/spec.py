"""The specification of a network, and the registry of families."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Size, Tensor, nn
from torch.nn.parameter import is_lazy

import fedfisher_core.models
from fedfisher_core.data.layouts import Layout
from fedfisher_core.engine.arithmetic import is_finite
from fedfisher_core.engine.errors import InputError, UnsupportedLayerError, in_one_line
from fedfisher_core.engine.registry import Registry, import_submodules

FOLDER = "folder:"
"""Begins the name of an encoder in a user's folder, whose path follows, and of a network in it or on its features."""

ADAPTED = "/lora"
"""Ends the name of a network with adapters in such an encoder."""

Parameters = dict[str, Tensor]

BatchNormalisation = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm
"""Layers that make an example's outputs depend on the other examples of its batch."""


@dataclass(frozen=True)
class Lora:
    """The adapters of a frozen network (Hu et al. 2022): alpha / rank B A x is added to the outputs of linear layers.

    Args:
        rank: of each product B A.
        targets: names of the layers that have an adapter, in each block.
        trained: both factors, or B alone for an A that all clients have.
    """

    rank: int = 8
    alpha: float = 16.0
    targets: tuple[str, ...] = ("query", "value")
    trained: Literal["both", "b"] = "both"

    @property
    def described(self) -> dict[str, Any]:
        """What it adds to the settings of a job, as JSON has it: nothing by default, so that names of results stay."""
        return {} if self == Lora() else {"lora": asdict(self)}


@dataclass(frozen=True)
class ModelSpec:
    """One network.

    Args:
        name: its family.
        inputs: layout of one example.
        classes: number of outputs.
        bias: whether its layers have a bias.
        widths: units (or filters) of its hidden layers; empty for the family's own.
        lora: its adapters, where the family has them; a width is their rank.
    """

    name: str
    inputs: Layout
    classes: int
    bias: bool = False
    widths: tuple[int, ...] = ()
    lora: Lora = Lora()

    def widths_or(self, default: tuple[int, ...]) -> tuple[int, ...]:
        """The widths of the hidden layers, or the family's.

        Raises:
            InputError: their number differs from the family's, or one is not positive.
        """
        if not self.widths:
            return default
        if len(self.widths) != len(default) or min(self.widths) < 1:
            raise InputError(f"model {self.name!r}: widths={self.widths}; allowed: {len(default)} positive numbers")
        return self.widths

    @property
    def family(self) -> Callable[["ModelSpec"], nn.Module]:
        """What builds the network.

        Raises:
            InputError: no family is registered under the name.
        """
        return models.get(self.name)

    @property
    def identity(self) -> str:
        """The name of the network in keys of results: that of its family, or of the files of an encoder's folder."""
        digest = getattr(self.family, "digest", None) if is_adapted_folder(self.name) else None
        return self.name if digest is None else f"{FOLDER}{digest}{ADAPTED}"

    def build(self) -> nn.Module:
        """Build the network on the CPU, with NaN for weights; see `skeleton` for errors."""
        network = self.skeleton()
        owned = dict(network.named_parameters(remove_duplicate=False))
        blank = {id(one): nn.Parameter(torch.full(one.shape, torch.nan)) for one in owned.values()}
        # torch's own `to_empty` loads half a second of symbolic shapes.
        network.load_state_dict({name: blank[id(one)] for name, one in owned.items()}, strict=False, assign=True)
        return network

    def skeleton(self) -> nn.Module:
        """Build the network on the meta device, without memory for its weights, to read its layers and shapes.

        Raises:
            InputError: the family is unknown, or can't be built with these settings; or it builds something else than a
                network, or a layer whose shapes depend on its inputs.
        """
        try:
            with torch.device("meta"):
                network = self.family(self)
        # A family may be third-party code, and its errors must not stop runs that do not use it.
        except (Exception, SystemExit) as error:
            if isinstance(error, InputError) and repr(self.name) in str(error):
                raise
            raise InputError(f"model {self.name!r} can't be built for {self.inputs}: {in_one_line(error)}") from error
        if not isinstance(network, nn.Module):
            raise InputError(f"model {self.name!r} builds a {type(network).__name__}; allowed: a torch.nn.Module")
        self._require_shapes(network)
        return network

    def shapes(self) -> dict[str, Size]:
        """The parameters' shapes by name; see `skeleton` for errors."""
        return dict(_shapes(self.family, self))

    def learnt(self) -> frozenset[str]:
        """The names of the parameters that gradients change, which excludes running statistics."""
        return frozenset(name for name, one in self.skeleton().named_parameters() if one.requires_grad)

    def initialise(self, generator: torch.Generator) -> Parameters:
        """Draw initial weights, layer by layer in the order of definition.

        A layer that initialises itself draws its own; other layers have torch's defaults.

        Raises:
            UnsupportedLayerError: a layer normalises over the batch; a parameter belongs to a layer that does not
                initialise itself and has no known default, or is not finite afterwards; or the network holds tensors
                besides its weights.
        """
        network = self.build()
        self._require_no_batches(network)
        with torch.no_grad():
            self._draw("", network, generator)
        for name, parameter in network.named_parameters():
            if not is_finite(parameter):
                raise UnsupportedLayerError(f"model {self.name!r}: its initialisation leaves {name!r} not finite")
        # The skeleton is checked, because in `network` shared weights have separate memory.
        self._require_parameters_only(self.skeleton())
        return parameters_of(network)

    def require_weights_only(self) -> None:
        """Make sure that weights are all that the network holds, as clients send nothing else of it.

        Raises:
            UnsupportedLayerError: a layer normalises over the batch, or holds a buffer, a tensor that is no parameter
                or a parameter that another layer holds too.
        """
        network = self.skeleton()
        self._require_no_batches(network)
        self._require_parameters_only(network)

    def _draw(self, name: str, layer: nn.Module, generator: torch.Generator) -> None:
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
                f"model {self.name!r}: {typed(name, layer)}; initial weights can be drawn for Linear, Conv2d, "
                f"Embedding, LayerNorm, GroupNorm and GRU only, or by a layer's own method initialise(generator)"
            )
        for child, part in layer.named_children():
            self._draw(f"{name}.{child}" if name else child, part, generator)

    def _require_shapes(self, network: nn.Module) -> None:
        """Refuse layers that have no weights before they have seen inputs."""
        for name, layer in network.named_modules():
            if any(map(is_lazy, (*layer.parameters(recurse=False), *layer.buffers(recurse=False)))):
                raise UnsupportedLayerError(
                    f"model {self.name!r}: {typed(name, layer)}, whose shapes are unknown before it sees inputs; "
                    f"allowed: layers with given sizes, such as Linear in place of LazyLinear"
                )

    def _require_no_batches(self, network: nn.Module) -> None:
        """Refuse layers whose outputs depend on a batch, or on running statistics of batches, which no client sends."""
        for name, layer in network.named_modules():
            if isinstance(layer, BatchNormalisation):
                raise UnsupportedLayerError(
                    f"model {self.name!r}: {typed(name, layer)}, whose statistics of batches no client sends; allowed: "
                    f"GroupNorm or LayerNorm in its place, or fedfisher.replace_batch_norm"
                )

    def _require_parameters_only(self, network: nn.Module) -> None:
        """Refuse tensors that clients do not send, and tensors that they would send twice."""
        for name, layer in network.named_modules():
            for own, value in vars(layer).items():
                # Names of torch's own, such as `_parameters`, begin so.
                parts = [] if own.startswith("_") else value
                held = parts.values() if isinstance(parts, dict) else parts if isinstance(parts, list | tuple) else []
                if any(isinstance(one, Tensor) for one in (value, *held)):
                    place = f"{name}.{own}" if name else own
                    raise UnsupportedLayerError(
                        f"model {self.name!r}: {place!r} is or holds a tensor that no client sends; allowed: "
                        "parameters, and tensors that the forward pass makes; delete what only the training needs"
                    )
        for name, _ in network.named_buffers():
            raise UnsupportedLayerError(
                f"model {self.name!r}: {name!r} is a buffer, which no client sends; allowed: parameters only"
            )
        once = dict(network.named_parameters())
        for name, _ in network.named_parameters(remove_duplicate=False):
            if name not in once:
                raise UnsupportedLayerError(f"model {self.name!r}: {name!r} is shared; allowed: one name a parameter")

    def load(self, parameters: Mapping[str, Tensor]) -> nn.Module:
        """Build the network with given weights, on their device."""
        network = self.skeleton()
        owned = {name: nn.Parameter(tensor.detach().clone()) for name, tensor in parameters.items()}
        network.load_state_dict(owned, assign=True)
        return network


def typed(name: str, layer: nn.Module) -> str:
    """The beginning of a sentence that names a layer, or the network itself, and its type."""
    if name:
        return f"layer {name!r} has type {type(layer).__name__}"
    own = ", ".join(repr(one) for one, _ in layer.named_parameters(recurse=False))
    return f"the network itself{f' holds {own} and' if own else ''} has type {type(layer).__name__}"


def layers_with_weights(network: nn.Module) -> list[tuple[str, nn.Module]]:
    """The layers that hold parameters of their own, with their names, in the order of definition."""
    return [(name, one) for name, one in network.named_modules() if any(True for _ in one.parameters(recurse=False))]


@cache
def _shapes(family: Callable[[ModelSpec], nn.Module], spec: ModelSpec) -> tuple[tuple[str, Size], ...]:
    # Cached, because every upload needs the shapes, and a skeleton takes a hundredth of a short client's training.
    return tuple((name, parameter.shape) for name, parameter in spec.skeleton().named_parameters())


@runtime_checkable
class Initialising(Protocol):
    """A network, or a layer of one, that draws its own initial weights."""

    def initialise(self, generator: torch.Generator, /) -> None:
        """Draw all parameters, also those of all parts, from this generator alone; called without gradients."""


class Family(Protocol):
    """Builds a network from its specification."""

    def __call__(self, spec: ModelSpec, /) -> nn.Module:
        """Build the network."""


def model(name: str) -> Callable[[Family], Family]:
    """Register a family of networks under its name in the settings."""

    def register(family: Family) -> Family:
        models.add(name, family)
        return family

    return register


def parameters_of(network: nn.Module) -> Parameters:
    """Copy a network's parameters, detached."""
    return {name: parameter.detach().clone() for name, parameter in network.named_parameters()}


class _Models(Registry[Family]):
    """Families by name, and networks with adapters in the encoder of a folder by its path."""

    def get(self, name: str) -> Family:
        """Look a name up, or find the encoder's folder; errors as for `Registry.get`."""
        if not is_adapted_folder(name):
            return super().get(name)
        # This module knows no encoder.
        family: Family = import_module("fedfisher_core.models.adapted_folder").folder_family(name.removesuffix(ADAPTED))
        return family


def is_adapted_folder(name: str) -> bool:
    """Whether a name is that of a network with adapters in a folder's encoder."""
    return name.startswith(FOLDER) and name.endswith(ADAPTED)


models: Registry[Family] = _Models(
    noun="model", group="fedfisher.models", builtin=lambda: import_submodules(fedfisher_core.models)
)
