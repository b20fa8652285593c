"""What a client may upload: the interface of all statistics."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import ClassVar, Self

import torch
from torch import Size, Tensor, nn

from fedfisher_core.data.tensors import Examples
from fedfisher_core.errors import DivergedClientError, InputError
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.engine import Backend, compute_fisher
from fedfisher_core.fisher.estimators import Empirical, Estimator, Exact, MonteCarlo
from fedfisher_core.fisher.result import Fisher
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import FisherSettings
from fedfisher_core.wire import Kind, StatisticSpec, TensorSpec


class ServerView(StrEnum):
    """What of a statistic the server must see."""

    SUM = "sum"
    EACH = "each"


@dataclass(frozen=True)
class Local:
    """A client after training: what every statistic is computed from.

    Args:
        network: the trained network, in evaluation mode.
        examples: the client's data without augmentation, on the network's device.
        classes: number of labels.
        batch_size: of the training.
        settings: how Fishers are computed.
        approximations: which of them the statistics of this client need; they share one pass over the data.
        generator: draws what the Monte-Carlo estimator samples, on the CPU.
    """

    network: nn.Module
    examples: Examples
    classes: int
    batch_size: int
    settings: FisherSettings
    approximations: frozenset[Approximation]
    generator: torch.Generator

    @cached_property
    def fisher(self) -> Fisher:
        """The Fisher information at the trained network, computed when it is first asked for."""
        return compute_fisher(
            self.network,
            self.examples.inputs,
            self.examples.labels,
            approximations=self.approximations,
            estimator=estimator_of(self.settings),
            memory_limit=self.settings.memory_mib * 2**20,
            generator=self.generator,
            backend=Backend(self.settings.backend),
        )


def estimator_of(settings: FisherSettings) -> Estimator:
    """Make the estimator that settings choose."""
    match settings.estimator:
        case "exact":
            return Exact()
        case "monte_carlo":
            return MonteCarlo(settings.samples)
        case "empirical":
            return Empirical()


@dataclass(frozen=True)
class Statistic(ABC):
    """Named tensors that a client computes at its trained model and sends.

    A subclass says in class variables how it is called, whether the server needs each client's own or only the
    (weighted) sum over clients, what kind of numbers it holds, which decides how it can be shortened, which Fisher it
    is made of, if any, and the version of its computation, which is part of every artifact's key.

    Args:
        tensors: float32 by name, in the order in which they are sent.
    """

    tensors: dict[str, Tensor]

    name: ClassVar[str]
    server_view: ClassVar[ServerView]
    kind: ClassVar[Kind]
    approximation: ClassVar[Approximation | None] = None
    version: ClassVar[int] = 1

    def __init_subclass__(cls) -> None:
        """Make sure that the class says what it must."""
        for required in ("name", "server_view", "kind"):
            if not hasattr(cls, required):
                raise InputError(f"statistic {cls.__name__!r} lacks the class variable {required!r}")

    @classmethod
    @abstractmethod
    def compute(cls, local: Local) -> Self:
        """Compute the statistic.

        Args:
            local: the trained client.

        Returns:
            The statistic, its tensors on the network's device.

        Raises:
            UnsupportedLayerError: the statistic does not exist for a layer of the network.
        """

    @classmethod
    @abstractmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        """Name the tensors and their shapes.

        Args:
            spec: the network that clients train.

        Returns:
            Shapes by name, in the order in which the tensors are sent.

        Raises:
            UnsupportedLayerError: the statistic does not exist for a layer of the network.
        """

    @classmethod
    def wire_spec(cls, spec: ModelSpec) -> StatisticSpec:
        """Describe the statistic to the wire.

        Args:
            spec: the network that clients train.

        Returns:
            Its name, kind and shapes.
        """
        tensors = (TensorSpec(name, tuple(shape)) for name, shape in cls.shapes(spec).items())
        return StatisticSpec(cls.name, cls.kind, tuple(tensors))

    def require_finite(self) -> None:
        """Make sure that nothing leaves the client that is not a number.

        Raises:
            DivergedClientError: names the statistic and the tensor.
        """
        for key, tensor in self.tensors.items():
            if not torch.isfinite(tensor).all():
                raise DivergedClientError(f"statistic {self.name!r}: tensor {key!r} is not finite")
