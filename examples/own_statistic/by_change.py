"""A statistic and a method that uses it: weights that training has changed most count most."""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Size

from fedfisher.extending import (
    NONNEGATIVE,
    Aggregate,
    Local,
    ModelSpec,
    Server,
    ServerView,
    TensorStatistic,
    Upload,
    Weights,
    method,
)


class Change(TensorStatistic):
    """How far training has moved each weight, without its sign."""

    name = "change"
    server_view = ServerView.EACH
    structure = NONNEGATIVE

    @classmethod
    def compute(cls, local: Local) -> Self:
        """Compare the trained network with the one that it started from."""
        moved = local.network.named_parameters()
        return cls({name: (tensor.detach() - local.initial[name]).abs() for name, tensor in moved})

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        """Name one tensor for each of the network's."""
        return spec.shapes()


@method("by_change", uploads=(Weights, Change), reference="https://arxiv.org/abs/1602.05629")
def by_change(server: Server, uploads: Sequence[Upload], *, floor: float = 1e-6) -> Aggregate:
    """Average every weight over the clients, each by how far it has moved it.

    Args:
        floor: added to every change, so that weights that no client has moved take the plain mean.
    """
    changes = [upload[Change].tensors for upload in uploads]
    weights = [upload[Weights].tensors for upload in uploads]
    merged = {}
    for name in weights[0]:
        shares = torch.stack([change[name] + floor for change in changes])
        shares = shares / shares.sum(0)
        merged[name] = (shares * torch.stack([one[name] for one in weights])).sum(0)
    return Aggregate.of(merged)
