"""What a client may upload: the interface of all statistics, and the registry of their kinds."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Self

import torch
from torch import Size, Tensor, nn

from fedfisher_core.data.tensors import Examples
from fedfisher_core.errors import DivergedClientError
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import FisherSettings


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
        fisher: how Fishers are computed.
    """

    network: nn.Module
    examples: Examples
    classes: int
    fisher: FisherSettings


@dataclass(frozen=True)
class Statistic(ABC):
    """Named tensors that a client computes at its trained model and sends.

    A subclass says in class variables how it is called, whether the server needs each client's own or only the
    (weighted) sum over clients, and the version of its computation, which is part of every artifact's key.

    Args:
        tensors: float32 by name, in the order in which they are sent.
    """

    tensors: dict[str, Tensor]

    name: ClassVar[str]
    server_view: ClassVar[ServerView]
    version: ClassVar[int] = 1

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
    def formula_bits(cls, spec: ModelSpec) -> int:
        """Count the bits as papers do: 32 a number, without any header.

        Args:
            spec: the network that clients train.

        Returns:
            Bits that one client sends.
        """
        return sum(32 * shape.numel() for shape in cls.shapes(spec).values())

    def require_finite(self) -> None:
        """Make sure that nothing leaves the client that is not a number.

        Raises:
            DivergedClientError: names the statistic and the tensor.
        """
        for key, tensor in self.tensors.items():
            if not torch.isfinite(tensor).all():
                raise DivergedClientError(f"statistic {self.name!r}: tensor {key!r} is not finite")
