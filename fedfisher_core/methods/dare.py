"""DARE: the mean of task vectors of which numbers are dropped at random, and the others enlarged."""

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import weighted_sum
from fedfisher_core.methods.shared.task_vectors import merge_learnt, moved, task_vectors
from fedfisher_core.models.spec import Parameters


@method(
    "dare",
    uploads=(Weights,),
    reference="https://arxiv.org/abs/2311.03099",
    shared_start=True,
)
def dare(
    server: Server,
    uploads: Sequence[Upload],
    *,
    drop: Annotated[float, Field(ge=0, lt=1, description="p, the probability that a number is dropped")] = 0.1,
) -> Aggregate:
    """Drop numbers of task vectors at random, rescale the others, and average (Yu et al. 2024).

    Each number of tau_i = w_i - w_0 is 0 with probability p, and divided by 1 - p otherwise, which keeps its
    expectation. p is the default of the authors' repository (yule-BUAA/MergeLM,
    `model_merging_methods/mask_weights_utils.py`), as is the plain mean of the models afterwards. The paper drops
    up to 0.99 of what fine-tuning changed in large language models; training from random weights changes more. Running
    statistics become their mean.
    """

    def thinned_mean(changes: Sequence[Parameters]) -> Parameters:
        thinned = (
            {name: _thin(tensor, drop, server.generator) for name, tensor in change.items()} for change in changes
        )
        return weighted_sum(thinned, [1 / len(changes)] * len(changes))

    return Aggregate.of(moved(server, merge_learnt(server, task_vectors(server, uploads), thinned_mean), 1.0))


def _thin(tensor: Tensor, drop: float, generator: torch.Generator) -> Tensor:
    # Drawn on the CPU, so that the same numbers are dropped on any device.
    kept = (torch.rand(tensor.shape, generator=generator) >= drop).to(tensor.device)
    return torch.where(kept, tensor / (1 - drop), 0)
