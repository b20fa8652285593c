"""The whole Fisher information at the client's model, for small networks."""

from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Size

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.statistic import ServerView, TensorStatistic
from fedfisher_core.communication.wire.structure import Structure
from fedfisher_core.communication.wire.tensors import SYMMETRIC
from fedfisher_core.engine.errors import InputError
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.layers import fisher_layers
from fedfisher_core.fisher.single_pass import MAX_DENSE_PARAMETERS
from fedfisher_core.models.spec import ModelSpec


@dataclass(frozen=True)
class DenseFisher(TensorStatistic):
    """F_i itself, shape (d, d), in the order of the network's d parameters (FedFisher, section 3)."""

    name: ClassVar[str] = "dense_fisher"
    server_view: ClassVar[ServerView] = ServerView.SUM
    structure: ClassVar[Structure] = SYMMETRIC
    approximation: ClassVar[Approximation] = Approximation.DENSE

    @classmethod
    def compute(cls, local: Local) -> Self:
        """Average J^T H J over the examples."""
        matrix = local.fisher.dense
        assert matrix is not None
        return cls({"matrix": matrix})

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        """Name the one matrix.

        Raises:
            InputError: the network has too many parameters.
            UnsupportedLayerError: a layer has no Fisher.
        """
        network = spec.skeleton()
        fisher_layers(network)
        size = sum(parameter.numel() for parameter in network.parameters())
        if size > MAX_DENSE_PARAMETERS:
            raise InputError(f"a full Fisher of {size:,} parameters; allowed: up to {MAX_DENSE_PARAMETERS:,}")
        return {"matrix": Size([size, size])}
