"""The leading eigenvectors of a client's Fisher at the weights that it started from (FIPA)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field
from torch import Size

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.statistic import ServerView, TensorStatistic
from fedfisher_core.communication.wire.leading import FIRST
from fedfisher_core.communication.wire.structure import Structure
from fedfisher_core.fisher.products import FisherProduct, leading_directions
from fedfisher_core.models.spec import ModelSpec

RANK = 10


@dataclass(frozen=True)
class FisherDirections(TensorStatistic):
    """D_i with D_i^T D_i = F_i up to its rank: an eigenvector a row, as long as the root of its eigenvalue.

    F_i is the Fisher at the weights that were broadcast, in the order of the network's d parameters. The one tensor is
    `directions`, shape (rank, d), the longest first; rows are 0, up to rounding, if the Fisher has fewer directions.
    """

    name: ClassVar[str] = "fisher_directions"
    server_view: ClassVar[ServerView] = ServerView.EACH
    structure: ClassVar[Structure] = FIRST

    @classmethod
    def compute(
        cls,
        local: Local,
        *,
        rank: Annotated[
            int, Field(ge=1, le=10_000, description="eigenvectors of a client's Fisher, the largest first")
        ] = RANK,
        labels: Annotated[
            Literal["model", "examples"],
            Field(description="whose labels the Fisher averages over: all that the model gives, or those of examples"),
        ] = "model",
    ) -> Self:
        """Multiply vectors by the Fisher, which never exists as a matrix.

        A product costs the same for any number of classes. So the expectation over the model's labels is exact,
        and `fisher.estimator` does not count here.
        """
        given = local.examples.labels if labels == "examples" else None
        start = {name: local.initial[name] for name, _ in local.network.named_parameters()}
        product = FisherProduct(local.network, start, local.examples.inputs, given)
        return cls({"directions": leading_directions(product, rank)})

    @classmethod
    def shapes(cls, spec: ModelSpec, *, rank: int = RANK) -> dict[str, Size]:
        """Name the one matrix."""
        size = sum(parameter.numel() for parameter in spec.skeleton().parameters())
        return {"directions": Size([min(rank, size), size])}
