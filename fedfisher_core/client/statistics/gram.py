"""Second moments of the inputs of linear layers (RegMean)."""

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Size, Tensor, nn

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.features import watch
from fedfisher_core.client.statistics.statistic import ServerView, TensorStatistic
from fedfisher_core.communication.wire.structure import Structure
from fedfisher_core.communication.wire.tensors import SYMMETRIC
from fedfisher_core.engine.errors import UnsupportedLayerError
from fedfisher_core.fisher.capture import never_called
from fedfisher_core.fisher.layers import require_plain
from fedfisher_core.fisher.weight_sharing import padding_of, require_positions, without_padding
from fedfisher_core.models.spec import ModelSpec, typed

_BATCH_SIZE = 500


@dataclass(frozen=True)
class Gram(TensorStatistic):
    """Mean of x x^T over the inputs x of each linear layer; convolutions have none (RegMean, section 3).

    Every position of a sequence is an input, unless it holds padding (`padding_of`). The projections of torch's
    `MultiheadAttention` have none.
    """

    name: ClassVar[str] = "gram"
    server_view: ClassVar[ServerView] = ServerView.SUM
    structure: ClassVar[Structure] = SYMMETRIC
    zero_filled: ClassVar[bool] = True

    @classmethod
    def compute(cls, local: Local) -> Self:
        """Average over the client's examples; sums are kept in double precision."""
        modules = dict(local.network.named_modules())
        layers = _linear_layers(local.network)
        padded = {name: layer for name, layer in modules.items() if padding_of(layer) is not None}
        tokens: dict[str, Tensor] = {}
        sums: dict[str, Tensor] = {}
        counts: Counter[str] = Counter()

        def add(name: str, inputs: Tensor, _: Tensor) -> None:
            if name in padded:
                tokens[name] = inputs
                return
            counted = without_padding(padded, tokens) if inputs.ndim > 2 else None
            require_positions(name, inputs.shape[1:-1].numel(), counted)
            rows = inputs.flatten(0, -2) if counted is None else inputs.flatten(1, -2)[counted]
            product = (rows.T @ rows).double()
            sums[name] = product if name not in sums else sums[name].add_(product)
            counts[name] += len(rows)

        watch(local, layers | padded, add, batch_size=_BATCH_SIZE)
        for name in layers:
            if name not in sums:
                raise never_called(name)
        return cls({name: (sums[name] / max(counts[name], 1)).float() for name in layers})

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        """Name one square matrix for every linear layer."""
        network = spec.skeleton()
        if isinstance(network, nn.Linear):
            raise UnsupportedLayerError(f"{typed('', network)}; allowed: a network whose parts hold its parameters")
        return {name: Size([layer.in_features] * 2) for name, layer in _linear_layers(network).items()}


def _linear_layers(network: nn.Module) -> dict[str, nn.Linear]:
    """Linear layers by name, except those whose inputs torch's attention does not show; see `require_plain`."""
    modules = dict(network.named_modules())
    hidden = [one.out_proj for one in modules.values() if isinstance(one, nn.MultiheadAttention)]
    found = {
        name: layer
        for name, layer in modules.items()
        if isinstance(layer, nn.Linear) and not any(layer is one for one in hidden)
    }
    for name, layer in found.items():
        require_plain(name, layer)
    return found
