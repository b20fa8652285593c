"""The aggregate itself, as FedAvg goes on (McMahan et al. 2017)."""

from collections.abc import Mapping

from torch import Tensor

from fedfisher_core.server_optimisers.optimiser import Step, server_optimiser


@server_optimiser("average", reference="https://arxiv.org/abs/1602.05629")
def average(change: Tensor, moments: Mapping[str, Tensor]) -> Step:
    """Go on from the aggregate itself.

    Args:
        change: Delta, aggregate less start.
        moments: none.

    Returns:
        Delta.
    """
    return change, {}
