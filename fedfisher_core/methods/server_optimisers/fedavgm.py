"""FedAvgM: momentum on the server (Hsu et al. 2019)."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedfisher_core.methods.server_optimisers.optimiser import Step, server_optimiser


@server_optimiser("fedavgm", reference="https://arxiv.org/abs/1909.06335", moments=lambda settings: {"momentum": 0.0})
def fedavgm(
    change: Tensor,
    moments: Mapping[str, Tensor],
    *,
    learning_rate: Annotated[float, Field(gt=0, description="of the server")] = 1.0,
    momentum: Annotated[float, Field(ge=0, lt=1, description="part of the last step that is taken again")] = 0.9,
) -> Step:
    """Add up changes with momentum: v = beta v + Delta, and step by eta v.

    v is the moment "momentum", 0 at first; eta is the learning rate and beta the momentum.
    """
    velocity = momentum * moments["momentum"] + change
    return learning_rate * velocity, {"momentum": velocity}
