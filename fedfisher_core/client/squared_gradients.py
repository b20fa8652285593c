"""Summed squared gradients of batches (FedFish)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from torch import Size
from torch.nn import functional

from fedfisher_core.client.statistic import ServerView, TensorStatistic
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.wire.nonnegative import NONNEGATIVE
from fedfisher_core.wire.structure import Structure

if TYPE_CHECKING:
    from fedfisher_core.client.local import Local


@dataclass(frozen=True)
class SquaredGradients(TensorStatistic):
    """Sum over batches of the squared gradient of the batch's mean loss (FedFish, Algorithm 2, lines 9 to 12).

    Unlike a Fisher it squares after averaging over a batch, and it grows with the number of batches.
    """

    name: ClassVar[str] = "squared_gradients"
    server_view: ClassVar[ServerView] = ServerView.SUM
    structure: ClassVar[Structure] = NONNEGATIVE

    @classmethod
    def compute(cls, local: "Local") -> Self:
        """Go through the client's data once more, in batches of the size of its training."""
        names, parameters = zip(*local.network.named_parameters(), strict=True)
        sums = [torch.zeros_like(parameter) for parameter in parameters]
        # A generator of its own: the client's may or may not have been used by other statistics before.
        generator = torch.Generator().manual_seed(local.generator.initial_seed())
        order = torch.randperm(len(local.examples), generator=generator)
        for indices in order.split(local.batch_size):
            batch = indices.to(local.examples.inputs.device)
            loss = functional.cross_entropy(local.network(local.examples.inputs[batch]), local.examples.labels[batch])
            for total, gradient in zip(sums, torch.autograd.grad(loss, parameters), strict=True):
                total += gradient.square()
        return cls(dict(zip(names, sums, strict=True)))

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        """Name the parameters and their shapes."""
        return {name: parameter.shape for name, parameter in spec.skeleton().named_parameters()}
