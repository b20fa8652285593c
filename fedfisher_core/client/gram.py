"""Second moments of the inputs of linear layers (RegMean)."""

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Size, Tensor, nn

from fedfisher_core.client.statistic import Local, ServerView, Statistic
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.wire import Kind

_BATCH_SIZE = 500


@dataclass(frozen=True)
class Gram(Statistic):
    """Mean of x x^T over the inputs x of each linear layer; convolutions have none (RegMean, section 3)."""

    name: ClassVar[str] = "gram"
    server_view: ClassVar[ServerView] = ServerView.SUM
    kind: ClassVar[Kind] = Kind.SYMMETRIC

    @classmethod
    def compute(cls, local: Local) -> Self:
        """Average over the client's examples; sums are kept in double precision."""
        layers = {name: layer for name, layer in local.network.named_modules() if isinstance(layer, nn.Linear)}
        sums: dict[str, Tensor] = {}

        def add(name: str, inputs: Tensor) -> None:
            product = (inputs.T @ inputs).double()
            sums[name] = product if name not in sums else sums[name].add_(product)

        hooks = [
            layer.register_forward_pre_hook(lambda _, inputs, name=name: add(name, inputs[0]))
            for name, layer in layers.items()
        ]
        try:
            with torch.no_grad():
                for batch in local.examples.inputs.split(_BATCH_SIZE):
                    local.network(batch)
        finally:
            for hook in hooks:
                hook.remove()
        return cls({name: (sums[name] / len(local.examples)).float() for name in layers})

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        """Name one square matrix for every linear layer."""
        layers = spec.skeleton().named_modules()
        return {name: Size([layer.in_features] * 2) for name, layer in layers if isinstance(layer, nn.Linear)}
