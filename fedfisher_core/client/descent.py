"""Gradient descent with momentum, one call a step."""

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
    """

    def __init__(self, network: nn.Module, settings: TrainSettings) -> None:
        self._weights: list[Tensor] = [weight for weight in network.parameters() if weight.requires_grad]
        self._velocities: list[Tensor | None] = [None] * len(self._weights)
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
                # Of colour images, gradients may come with channels last, which weights on a GPU are not stepped along.
                [gradient.contiguous() for gradient in gradients],
                self._velocities,
                fused=True,
                lr=self._settings.learning_rate,
                momentum=self._settings.momentum,
                weight_decay=self._settings.weight_decay,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )
