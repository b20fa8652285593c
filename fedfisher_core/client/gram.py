"""Second moments of the inputs of linear layers (RegMean)."""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from torch import Size, Tensor, nn

from fedfisher_core.client.statistic import ServerView, TensorStatistic
from fedfisher_core.client.watching import watch
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.wire.structure import Structure
from fedfisher_core.wire.symmetric import SYMMETRIC

if TYPE_CHECKING:
    from fedfisher_core.client.local import Local

_BATCH_SIZE = 500


@dataclass(frozen=True)
class Gram(TensorStatistic):
    """Mean of x x^T over the inputs x of each linear layer; convolutions have none (RegMean, section 3)."""

    name: ClassVar[str] = "gram"
    server_view: ClassVar[ServerView] = ServerView.SUM
    structure: ClassVar[Structure] = SYMMETRIC

    @classmethod
    def compute(cls, local: "Local") -> Self:
        """Average over the client's examples; sums are kept in double precision."""
        layers = {name: layer for name, layer in local.network.named_modules() if isinstance(layer, nn.Linear)}
        sums: dict[str, Tensor] = {}
        counts: Counter[str] = Counter()

        def add(name: str, inputs: Tensor, _: Tensor) -> None:
            # Of a sequence, every place is an input.
            rows = inputs.flatten(0, -2)
            product = (rows.T @ rows).double()
            sums[name] = product if name not in sums else sums[name].add_(product)
            counts[name] += len(rows)

        watch(local, layers, add, batch_size=_BATCH_SIZE)
        return cls({name: (sums[name] / counts[name]).float() for name in layers})

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        """Name one square matrix for every linear layer."""
        layers = spec.skeleton().named_modules()
        return {name: Size([layer.in_features] * 2) for name, layer in layers if isinstance(layer, nn.Linear)}
