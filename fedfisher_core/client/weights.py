"""The trained weights themselves."""

from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Size

from fedfisher_core.client.statistic import Local, ServerView, Statistic
from fedfisher_core.models.spec import ModelSpec, parameters_of
from fedfisher_core.wire import Kind


@dataclass(frozen=True)
class Weights(Statistic):
    """The parameters w_i of the client's model."""

    name: ClassVar[str] = "weights"
    server_view: ClassVar[ServerView] = ServerView.SUM
    kind: ClassVar[Kind] = Kind.WEIGHTS

    @classmethod
    def compute(cls, local: Local) -> Self:
        """Copy the network's parameters."""
        return cls(parameters_of(local.network))

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        """Name the parameters and their shapes."""
        return {name: parameter.shape for name, parameter in spec.skeleton().named_parameters()}
