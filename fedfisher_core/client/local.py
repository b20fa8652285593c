"""A client after training, from which every statistic is computed, and the features that its last layer reads."""

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.computed_once import computed_once
from fedfisher_core.engine.errors import InputError, UnsupportedLayerError
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.engine import Backend, compute_fisher
from fedfisher_core.fisher.estimators import Empirical, Estimator, Exact, MonteCarlo, Truncated
from fedfisher_core.fisher.result import Fisher
from fedfisher_core.fisher.weight_sharing import WeightSharing
from fedfisher_core.models.spec import Parameters, layers_with_weights
from fedfisher_core.settings import FisherSettings, PrivacySettings

S = TypeVar("S", bound=Statistic)


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
    layers = layers_with_weights(network)
    if len(layers) < 2 or not isinstance(layers[-1][1], nn.Linear):
        names = ", ".join(name or "the network itself" for name, _ in layers)
        raise UnsupportedLayerError(
            f"the network has no feature map: its layers with weights are {names}; allowed: networks whose last such "
            "layer is a Linear after others"
        )
    return layers[-1][0]


@dataclass(frozen=True)
class Local:
    """A client after training.

    Args:
        network: the trained network, in evaluation mode.
        initial: the weights from which its training started, on the network's device.
        examples: the client's data without augmentation, on the network's device.
        approximations: those that the client's statistics need; they share one pass over the data.
        generator: on the CPU; its seed is the seed of all draws.
        trainer: trains further networks, see `further`; None if no statistic declares `trains_again`.
    """

    network: nn.Module
    initial: Parameters
    examples: Examples
    classes: int
    batch_size: int
    settings: FisherSettings
    approximations: frozenset[Approximation]
    generator: torch.Generator
    trainer: Callable[[int], nn.Module] | None = field(default=None, kw_only=True)

    @computed_once
    def fisher(self) -> Fisher:
        """The Fisher information at the trained network, computed on first use."""
        return compute_fisher(
            self.network,
            self.examples.inputs,
            self.examples.labels,
            approximations=self.approximations,
            estimator=estimator_of(self.settings),
            weight_sharing=WeightSharing(self.settings.weight_sharing),
            memory_limit=self.settings.memory_limit,
            # A new generator, so that the draws do not depend on what was computed before.
            generator=torch.Generator().manual_seed(self.generator.initial_seed()),
            backend=Backend(self.settings.backend),
        )

    def further(self, number: int) -> nn.Module:
        """Train a further network as the client's own was trained, but from another start.

        Every call with the same number gives the same network, in evaluation mode.

        Args:
            number: from 1; all clients share the start of a number.
        """
        if self.trainer is None:
            raise RuntimeError("the statistic trains further networks, but does not declare trains_again = True")
        return self.trainer(number)

    def compute(self, statistic: type[S], settings: Mapping[str, Any]) -> S:
        """Compute a statistic with its keyword arguments, in the form in which this client may send it."""
        return statistic.compute(self, **settings)


@dataclass(frozen=True)
class Releasing(Local, ABC):
    """A client after private training: what it sends is released with differential privacy.

    Args:
        privacy: the clips.
    """

    privacy: PrivacySettings

    @property
    @abstractmethod
    def multiplier(self) -> float:
        """Noise of each mechanism except the training: its standard deviation as a multiple of its clip."""

    @abstractmethod
    def input_moments(self, name: str) -> tuple[Tensor, Tensor]:
        """Release mean and covariance of the client's inputs as one mechanism.

        Args:
            name: the statistic that they are for, see `noise_generator`.

        Returns:
            The mean, shape (inputs,), and the covariance, shape (inputs, inputs), in double precision. The covariance
            is symmetric, but noise may give it negative eigenvalues.
        """

    def noise_generator(self, name: str) -> torch.Generator:
        """A CPU generator for the noise of a statistic or one of its mechanisms, in the same state for every call.

        Args:
            name: of the statistic or the mechanism; nothing else may use its noise.
        """
        seed = hashlib.blake2b(f"{self.generator.initial_seed()} {name}".encode(), digest_size=7)
        return torch.Generator().manual_seed(int.from_bytes(seed.digest(), "little"))


def estimator_of(settings: FisherSettings) -> Estimator:
    """Make the estimator that settings choose; InputError if they still say "auto"."""
    match settings.estimator:
        case "exact":
            return Exact()
        case "truncated":
            return Truncated(settings.tolerance, settings.directions)
        case "monte_carlo":
            return MonteCarlo(settings.samples)
        case "empirical":
            return Empirical()
        case "auto":
            raise InputError(
                "fisher.estimator='auto': a pass needs settings that say its estimator; allowed: exact, truncated, "
                "monte_carlo, empirical, or what FisherSettings.chosen returns for a data set and a device"
            )
