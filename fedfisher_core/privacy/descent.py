"""The steps of DP-SGD by Opacus' "ghost clipping"; imports Opacus, which takes seconds."""

from types import TracebackType

import torch
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping
from torch import Tensor, nn

from fedfisher_core.client.objectives.objective import Losses, cross_entropies
from fedfisher_core.privacy.accountant import quieten
from fedfisher_core.settings import TrainSettings

MICROBATCH = 64
"""Most examples of a batch that go through the network at a time, as convolutions hold a gradient for each."""


class _Optimiser(DPOptimizerFastGradientClipping):
    """Draws its noise on the CPU wherever the network is, so that all devices draw the same numbers."""

    def add_noise(self) -> None:
        """Leave the noisy sum of the clipped gradients as the gradient."""
        deviation = self.noise_multiplier * self.max_grad_norm
        for parameter in self.params:
            noise = torch.randn(parameter.shape, dtype=parameter.dtype, generator=self.generator)
            parameter.grad = parameter.summed_grad + deviation * noise.to(parameter.device)


class PrivateDescent:
    """SGD with momentum on noisy means of clipped gradients; a context in which the network carries Opacus' hooks.

    Args:
        network: in training mode; trained in place.
        noise_multiplier: deviation of the noise, as a multiple of the clip.
        gradient_clip: largest L2 norm of an example's gradient.
        expected_batch_size: by which sums of gradients are divided.
        generator: draws the noise, on the CPU.
        losses: loss of each example of a batch, by its own outputs and label alone.
    """

    def __init__(
        self,
        network: nn.Module,
        settings: TrainSettings,
        *,
        noise_multiplier: float,
        gradient_clip: float,
        expected_batch_size: int,
        generator: torch.Generator,
        losses: Losses = cross_entropies,
    ) -> None:
        quieten()
        self._losses = losses
        self._module = GradSampleModuleFastGradientClipping(network, loss_reduction="sum", max_grad_norm=gradient_clip)
        plain = torch.optim.SGD(
            network.parameters(),
            lr=settings.learning_rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self._optimiser = _Optimiser(
            plain,
            noise_multiplier=noise_multiplier,
            max_grad_norm=gradient_clip,
            expected_batch_size=expected_batch_size,
            generator=generator,
        )

    def __enter__(self) -> "PrivateDescent":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._module.to_standard_module()

    def step(self, inputs: Tensor, labels: Tensor) -> float:
        """Do one step on a batch, and return the sum of its losses before; an empty batch makes a step of noise."""
        if len(inputs) == 0:
            self._optimiser.zero_grad()
            for parameter in self._optimiser.params:
                parameter.grad = torch.zeros_like(parameter)
            self._optimiser.step()
            return 0.0
        total = 0.0
        parts = list(zip(inputs.split(MICROBATCH), labels.split(MICROBATCH), strict=True))
        for left, (some, classes) in zip(reversed(range(len(parts))), parts, strict=True):
            losses = self._losses(self._module(some), classes)
            DPTensorFastGradientClipping(self._module, self._optimiser, losses, loss_reduction="sum").backward()
            # All parts but the last only add to the sum of clipped gradients.
            self._optimiser.signal_skip_step(left > 0)
            self._optimiser.step()
            total += float(losses.detach().sum())
        return total
