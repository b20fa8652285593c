"""The diagonal of the Fisher information at the client's model."""

from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Size

from fedfisher_core.client.statistic import Local, ServerView, Statistic
from fedfisher_core.fisher import nngeometry_backend
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.layers import fisher_layers
from fedfisher_core.models.spec import ModelSpec


@dataclass(frozen=True)
class DiagonalFisher(Statistic):
    """diag F_i, one non-negative number a parameter (FedFisher, section 4)."""

    name: ClassVar[str] = "diagonal_fisher"
    server_view: ClassVar[ServerView] = ServerView.SUM

    @classmethod
    def compute(cls, local: Local) -> Self:
        """Average the squared derivatives over examples, exact over the model's outputs."""
        fisher = nngeometry_backend.compute(
            local.network,
            local.examples.inputs,
            approximations={Approximation.DIAGONAL},
            batch_size=local.fisher.batch_size,
        )
        assert fisher.diagonal is not None
        return cls(fisher.diagonal)

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        """Name the parameters and their shapes."""
        network = spec.skeleton()
        fisher_layers(network)
        return {name: parameter.shape for name, parameter in network.named_parameters()}
