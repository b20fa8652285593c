"""Summed squared gradients of batches (FedFish)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Size, Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.statistic import ServerView, TensorStatistic
from fedfisher_core.communication.wire.structure import Structure
from fedfisher_core.communication.wire.tensors import NONNEGATIVE
from fedfisher_core.data.tensors import Examples
from fedfisher_core.models.spec import ModelSpec, Parameters


def sum_squared_gradients(
    network: nn.Module, examples: Examples, batches: Iterable[Tensor], loss: Callable[[Tensor, Tensor], Tensor]
) -> Parameters:
    """Sum the squared gradients of batches, sum_b (dl_b / dw)^2 (Dhawan et al. 2023, Algorithm 2, lines 9 to 12).

    Args:
        network: left unchanged.
        examples: on the network's device.
        batches: indices of the examples of each batch.
        loss: mean loss l of a batch, by the network's outputs and the batch's labels.
    """
    # Running statistics get a gradient here, which training does not use.
    parameters = {name: one.detach().requires_grad_() for name, one in network.named_parameters()}
    sums = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
    for indices in batches:
        batch = indices.to(examples.inputs.device)
        outputs = functional_call(network, parameters, examples.inputs[batch])
        # A weight on which the loss does not depend has the gradient 0, as in training.
        gradients = torch.autograd.grad(
            loss(outputs, examples.labels[batch]), list(parameters.values()), materialize_grads=True
        )
        for total, gradient in zip(sums.values(), gradients, strict=True):
            total += gradient.square()
    return sums


@dataclass(frozen=True)
class SquaredGradients(TensorStatistic):
    """Sum over batches of the squared gradient of the batch's mean loss (FedFish, Algorithm 2, lines 9 to 12).

    Unlike a Fisher it squares after averaging over a batch, and it grows with the number of batches.
    """

    name: ClassVar[str] = "squared_gradients"
    server_view: ClassVar[ServerView] = ServerView.SUM
    structure: ClassVar[Structure] = NONNEGATIVE

    @classmethod
    def compute(cls, local: Local) -> Self:
        """Go through the client's data once more, in batches of the size of its training."""
        # A new generator, because other statistics may have used the client's before.
        generator = torch.Generator().manual_seed(local.generator.initial_seed())
        batches = torch.randperm(len(local.examples), generator=generator).split(local.batch_size)
        return cls(sum_squared_gradients(local.network, local.examples, batches, functional.cross_entropy))

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        """Name the parameters and their shapes."""
        return spec.shapes()
