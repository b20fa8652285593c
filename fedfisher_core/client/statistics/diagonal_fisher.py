"""The diagonal of the Fisher information at the client's model."""

from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Size

from fedfisher_core.client.local import Local, Releasing
from fedfisher_core.client.statistics.statistic import ServerView, TensorStatistic
from fedfisher_core.communication.wire.structure import Structure
from fedfisher_core.communication.wire.tensors import NONNEGATIVE
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.layers import fisher_layers
from fedfisher_core.models.spec import ModelSpec


@dataclass(frozen=True)
class DiagonalFisher(TensorStatistic):
    """diag F_i, one non-negative number a parameter (FedFisher, section 4)."""

    name: ClassVar[str] = "diagonal_fisher"
    server_view: ClassVar[ServerView] = ServerView.SUM
    structure: ClassVar[Structure] = NONNEGATIVE
    approximation: ClassVar[Approximation] = Approximation.DIAGONAL
    zero_filled: ClassVar[bool] = True
    mechanisms: ClassVar[int | None] = 1

    @classmethod
    def compute(cls, local: Local) -> Self:
        """Average the squared derivatives over the examples."""
        diagonal = local.fisher.diagonal
        assert diagonal is not None
        return cls(diagonal)

    @classmethod
    def release(cls, local: Releasing) -> Self:
        """Take the client's noisy Fisher."""
        return cls.compute(local)

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        """Name the parameters and their shapes."""
        network = spec.skeleton()
        fisher_layers(network)
        return {name: parameter.shape for name, parameter in network.named_parameters()}
