"""Gradient descent with momentum, one call a step."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

from fedfisher_core.settings import TrainSettings


class Descent:
    """SGD with momentum and weight decay, equal to `torch.optim.SGD` to the last bit.

    The optimiser's class is left out, since its first use loads torch's compiler. A weight that the loss does not
    depend on has the gradient 0.

    Args:
        network: trained in place.
        settings: learning rate, momentum and weight decay.
        velocities: of earlier steps, one a weight, changed in place; None before the first.
    """

    def __init__(
        self, network: nn.Module, settings: TrainSettings, *, velocities: Sequence[Tensor] | None = None
    ) -> None:
        self._weights: list[Tensor] = [weight for weight in network.parameters() if weight.requires_grad]
        self._velocities: list[Tensor | None] = [*velocities] if velocities else [None] * len(self._weights)
        self._settings = settings

    def step(self, loss: Tensor) -> None:
        """Do one step.

        Args:
            loss: a scalar.
        """
        gradients = torch.autograd.grad(loss, self._weights, materialize_grads=True)
        with torch.no_grad():
            sgd(
                self._weights,
                [_laid_out(gradient, as_=weight) for gradient, weight in zip(gradients, self._weights, strict=True)],
                self._velocities,
                fused=True,
                lr=self._settings.learning_rate,
                momentum=self._settings.momentum,
                weight_decay=self._settings.weight_decay,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )


def _laid_out(gradient: Tensor, *, as_: Tensor) -> Tensor:
    """Put a gradient into memory as its weight is.

    The fused step goes through both in the order of memory, on a processor without a word where that differs. So it
    does where images have their channels last, as crops and flips leave them: the gradients of filters have them last
    too.
    """
    return gradient if gradient.stride() == as_.stride() else torch.empty_like(as_).copy_(gradient)
