"""FedProx: cross-entropy and a pull to the weights that training starts from (Li et al. 2020)."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedfisher_core.client.objectives.objective import Knowledge, Known, cross_entropies, objective


@objective("fedprox", reference="https://arxiv.org/abs/1812.06127", reads=(Knowledge.WEIGHTS,))
def fedprox(
    logits: Tensor,
    labels: Tensor,
    known: Known,
    *,
    mu: Annotated[
        float, Field(ge=0, description="strength of the pull to the weights that training starts from")
    ] = 0.01,
) -> Tensor:
    """FedProx: cross-entropy plus mu/2 |w - w_start|^2.

    The norm is squared, over all weights; the pull is the same for each example, so that the mean has it once.

    Args:
        logits: f, shape (batch, classes).
        labels: y, int64, shape (batch,).
        known: the weights w and those that training started from.
        mu: 0 is plain cross-entropy.

    Returns:
        The losses, shape (batch,), in nats.
    """
    start = known.start
    squares = [(weight - start[name]).square().sum() for name, weight in known.weights.items()]
    return cross_entropies(logits, labels) + mu / 2 * torch.stack(squares).sum()
