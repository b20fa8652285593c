"""A client after training: what every statistic is computed from."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fedfisher_core.client.statistic import Statistic
from fedfisher_core.data.tensors import Examples
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.engine import Backend, compute_fisher
from fedfisher_core.fisher.estimators import Empirical, Estimator, Exact, MonteCarlo, Truncated
from fedfisher_core.fisher.result import Fisher
from fedfisher_core.lazily import computed_once
from fedfisher_core.models.spec import Parameters
from fedfisher_core.settings import FisherSettings, PrivacySettings

S = TypeVar("S", bound=Statistic)


@dataclass(frozen=True)
class Local:
    """A client after training.

    Args:
        network: the trained network, in evaluation mode.
        initial: the weights that its training started from, on the network's device.
        examples: the client's data without augmentation, on the network's device.
        classes: number of labels.
        batch_size: of the training.
        settings: how Fishers are computed.
        approximations: which of them the statistics of this client need; they share one pass over the data.
        generator: its seed is that of all that is drawn, on the CPU.
        trainer: trains further networks, see `further`; None for statistics that do not declare `trains_again`.
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
        """The Fisher information at the trained network, computed when it is first asked for."""
        return compute_fisher(
            self.network,
            self.examples.inputs,
            self.examples.labels,
            approximations=self.approximations,
            estimator=estimator_of(self.settings),
            memory_limit=self.settings.memory_limit,
            # Of its own, so that what is drawn does not depend on what was computed before.
            generator=torch.Generator().manual_seed(self.generator.initial_seed()),
            backend=Backend(self.settings.backend),
        )

    def further(self, number: int) -> nn.Module:
        """Train a further network as the client's own was trained, but from another start.

        Args:
            number: from 1; all clients share the start of a number.

        Returns:
            The network, in evaluation mode; the same one whenever it is asked for.
        """
        if self.trainer is None:
            raise RuntimeError("the statistic has further networks trained, and does not declare trains_again = True")
        return self.trainer(number)

    def compute(self, statistic: type[S], settings: Mapping[str, Any]) -> S:
        """Compute a statistic in the way in which this client's may be sent.

        Args:
            statistic: which.
            settings: its keyword arguments.

        Returns:
            The statistic.
        """
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
        """Deviation of the noise of each mechanism beside the training, as a multiple of its clip."""

    @abstractmethod
    def input_moments(self, name: str) -> tuple[Tensor, Tensor]:
        """Release mean and covariance of the client's inputs as one mechanism.

        Args:
            name: of the statistic that they are for, see `noise_generator`.

        Returns:
            The mean, shape (inputs,), and the covariance, shape (inputs, inputs), in double precision. The covariance
            is symmetric; the noise may leave it negative eigenvalues.
        """

    def noise_generator(self, name: str) -> torch.Generator:
        """Make a generator of noise that nothing else has.

        Args:
            name: of the statistic, or of one of its mechanisms if it has several.

        Returns:
            A generator on the CPU, the same whenever it is asked for.
        """
        seed = hashlib.blake2b(f"{self.generator.initial_seed()} {name}".encode(), digest_size=7)
        return torch.Generator().manual_seed(int.from_bytes(seed.digest(), "little"))


def estimator_of(settings: FisherSettings) -> Estimator:
    """Make the estimator that settings choose, which is no longer "auto"."""
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
            raise RuntimeError("an estimator is made of settings that do not choose one; see FisherSettings.chosen")
