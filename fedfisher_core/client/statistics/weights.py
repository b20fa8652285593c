"""The trained weights themselves."""

from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Size

from fedfisher_core.client.local import Local, Releasing
from fedfisher_core.client.statistics.statistic import ServerView, TensorStatistic
from fedfisher_core.communication.wire.structure import Structure
from fedfisher_core.communication.wire.tensors import SIGNED
from fedfisher_core.models.spec import ModelSpec, parameters_of


@dataclass(frozen=True)
class Weights(TensorStatistic):
    """The parameters w_i of the client's model."""

    name: ClassVar[str] = "weights"
    server_view: ClassVar[ServerView] = ServerView.SUM
    structure: ClassVar[Structure] = SIGNED
    zero_filled: ClassVar[bool] = True
    mechanisms: ClassVar[int | None] = 0

    @classmethod
    def compute(cls, local: Local) -> Self:
        """Copy the network's parameters."""
        return cls(parameters_of(local.network))

    @classmethod
    def release(cls, local: Releasing) -> Self:
        """Copy the parameters, whose training was private."""
        return cls.compute(local)

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        """Name the parameters and their shapes."""
        return spec.shapes()
