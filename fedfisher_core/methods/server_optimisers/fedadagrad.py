"""FedAdagrad (Reddi et al. 2021, Algorithm 2)."""

from collections.abc import Mapping

from torch import Tensor

from fedfisher_core.methods.server_optimisers.adaptive import (
    Adaptivity,
    FirstDecay,
    LearningRate,
    adaptive_step,
    first_moments,
)
from fedfisher_core.methods.server_optimisers.optimiser import Step, server_optimiser


@server_optimiser("fedadagrad", reference="https://arxiv.org/abs/2003.00295", moments=first_moments)
def fedadagrad(
    change: Tensor,
    moments: Mapping[str, Tensor],
    *,
    learning_rate: LearningRate = 0.1,
    beta_1: FirstDecay = 0.0,
    adaptivity: Adaptivity = 1e-3,
) -> Step:
    """FedAdagrad: the adaptive step with v = v + Delta^2.

    The moments are m as "mean" and v as "square"; eta is the learning rate and tau the adaptivity.
    """
    square = moments["square"] + change.square()
    return adaptive_step(
        change, moments["mean"], square, learning_rate=learning_rate, beta_1=beta_1, adaptivity=adaptivity
    )
