"""The method to compare: the median of every weight (Yin et al. 2018)."""

from collections.abc import Sequence

import torch

from fedfisher.extending import Aggregate, Server, Upload, Weights, method


@method("my_median", uploads=(Weights,), reference="https://arxiv.org/abs/1803.01498")
def my_median(server: Server, uploads: Sequence[Upload], *, towards_mean: float = 0.0) -> Aggregate:
    """Take the median of every weight over the clients, or a point between it and their plain mean.

    Args:
        towards_mean: 0 for the median, 1 for the mean.
    """
    clients = [upload[Weights].tensors for upload in uploads]
    stacked = {name: torch.stack([one[name] for one in clients]) for name in clients[0]}
    return Aggregate.of(
        {name: torch.lerp(of.median(0).values, of.mean(0), towards_mean) for name, of in stacked.items()}
    )
