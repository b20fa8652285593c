"""The next round starts from the aggregate, as FedAvg does (McMahan et al. 2017)."""

from collections.abc import Mapping

from torch import Tensor

from fedfisher_core.methods.server_optimisers.optimiser import Step, server_optimiser


@server_optimiser("average", reference="https://arxiv.org/abs/1602.05629")
def average(change: Tensor, moments: Mapping[str, Tensor]) -> Step:
    """Go on from the aggregate itself."""
    return change, {}
