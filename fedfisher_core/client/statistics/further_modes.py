"""Further networks of a client, each trained from another start, and their Kronecker factors."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self, TypeVar

from torch import Size, Tensor, nn

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.statistic import ServerView, TensorStatistic
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.communication.wire.structure import Structure
from fedfisher_core.communication.wire.tensors import SIGNED, SYMMETRIC
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.models.spec import ModelSpec, Parameters, parameters_of

T = TypeVar("T")

FURTHER = 2
"""Together with the client's first network, these are the three of FedBEns."""


@dataclass(frozen=True)
class FurtherWeights(TensorStatistic):
    """The parameters of the further networks, each under the network's number."""

    name: ClassVar[str] = "further_weights"
    server_view: ClassVar[ServerView] = ServerView.EACH
    structure: ClassVar[Structure] = SIGNED
    trains_again: ClassVar[bool] = True

    @classmethod
    def compute(cls, local: Local) -> Self:
        """Train the networks, and copy their parameters."""
        return cls(_numbered(parameters_of(network) for network in _networks(local)))

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        """Name the parameters of each network and their shapes."""
        return _numbered([Weights.shapes(spec)] * FURTHER)

    def modes(self) -> list[Parameters]:
        """The parameters of each network, by name."""
        return _parted(self.tensors)


@dataclass(frozen=True)
class FurtherFactors(TensorStatistic):
    """A_l and G_l of every layer l of the further networks, each under the network's number."""

    name: ClassVar[str] = "further_factors"
    server_view: ClassVar[ServerView] = ServerView.EACH
    structure: ClassVar[Structure] = SYMMETRIC
    trains_again: ClassVar[bool] = True

    @classmethod
    def compute(cls, local: Local) -> Self:
        """Train the networks, and average their factors over the examples."""
        wanted = frozenset({Approximation.KFAC})
        seen = (replace(local, network=network, approximations=wanted) for network in _networks(local))
        return cls(_numbered(KFAC.compute(one).tensors for one in seen))

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        """Name the two square factors of every layer of each network."""
        return _numbered([KFAC.shapes(spec)] * FURTHER)

    def modes(self) -> list[KFAC]:
        """The factors of each network."""
        return [KFAC.of(tensors) for tensors in _parted(self.tensors)]


def _networks(local: Local) -> Iterator[nn.Module]:
    return map(local.further, range(1, FURTHER + 1))


def _numbered(networks: Iterable[Mapping[str, T]]) -> dict[str, T]:
    return {f"{number}/{name}": one for number, own in enumerate(networks, start=1) for name, one in own.items()}


def _parted(tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    parts: list[dict[str, Tensor]] = [{} for _ in range(FURTHER)]
    for key, tensor in tensors.items():
        number, _, name = key.partition("/")
        parts[int(number) - 1][name] = tensor
    return parts
