"""The features that the last layer of a network reads, under the network's weights and under others."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedfisher_core.engine.errors import UnsupportedLayerError
from fedfisher_core.models.spec import Parameters


class Features:
    """Features of the latest batch that a network was given, which is watched from now on.

    Raises:
        UnsupportedLayerError: the network has no features, see `last_layer`.
    """

    def __init__(self, network: nn.Module) -> None:
        name = last_layer(network)
        # In training mode, dropout would add to the difference that other weights make.
        self._frozen = copy.deepcopy(network).eval()
        self._batch: tuple[Any, ...] = ()
        self._now: Tensor | None = None
        self._other: Tensor | None = None
        network.register_forward_pre_hook(self._note_batch)
        network.get_submodule(name).register_forward_pre_hook(self._note_now)
        self._frozen.get_submodule(name).register_forward_pre_hook(self._note_other)

    @property
    def now(self) -> Tensor:
        """Features under the network's weights, shape (batch, features); gradients flow through them."""
        if self._now is None:
            raise RuntimeError("features were asked for before the network was given a batch")
        return self._now

    def under(self, weights: Parameters) -> Tensor:
        """The batch's features under other weights, shape (batch, features), without gradients."""
        with torch.no_grad():
            functional_call(self._frozen, weights, self._batch)
        assert self._other is not None
        return self._other

    def _note_batch(self, network: nn.Module, given: tuple[Any, ...]) -> None:
        self._batch = given

    def _note_now(self, layer: nn.Module, given: tuple[Tensor, ...]) -> None:
        self._now = given[0].flatten(1)

    def _note_other(self, layer: nn.Module, given: tuple[Tensor, ...]) -> None:
        self._other = given[0].flatten(1)


def last_layer(network: nn.Module) -> str:
    """Name the layer whose inputs are the features: the last one, if it is linear and not the only one.

    Raises:
        UnsupportedLayerError: there is no such layer.
    """
    layers = [name for name, layer in network.named_modules() if any(True for _ in layer.parameters(recurse=False))]
    if len(layers) < 2 or not isinstance(network.get_submodule(layers[-1]), nn.Linear):
        names = ", ".join(name or "the network itself" for name in layers)
        raise UnsupportedLayerError(
            f"the network has no feature map: its layers with weights are {names}; allowed: networks whose last such "
            "layer is a Linear after others"
        )
    return layers[-1]
