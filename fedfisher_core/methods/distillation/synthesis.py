"""Images that a teacher is sure of and a student gets wrong."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.methods.distillation.generator import Generator
from fedfisher_core.models.batch_norm import BatchNorm

View = Callable[[Tensor], Tensor]
ImageLoss = Callable[[Tensor, Tensor, Tensor, Tensor | float], Tensor]
"""Takes the student's logits, the teacher's, the labels and the distance from running statistics; gives a loss."""

_BETAS = (0.5, 0.999)


@dataclass(frozen=True)
class Objective:
    """The loss that DENSE synthesises images by (Zhang et al. 2022, L_gen).

    Args:
        classes: factor of the cross-entropy of the teacher's prediction with the labels.
        batch_norm: factor of the distance from the statistics in the teacher's batch normalisation.
        adversarial: factor of the loss that draws images to where student and teacher disagree.
    """

    classes: float
    batch_norm: float
    adversarial: float

    def __call__(self, student: Tensor, teacher: Tensor, labels: Tensor, distance: Tensor | float) -> Tensor:
        """Sum the three losses of logits of shape (images, classes)."""
        return (
            self.classes * functional.cross_entropy(teacher, labels)
            + self.batch_norm * distance
            + self.adversarial * adversarial_loss(student, teacher)
        )


@dataclass(frozen=True)
class Synthesised:
    """A batch of images.

    Args:
        pixels: between 0 and 1, shape (images, channels, height, width).
        loss: of these images, the smallest of all steps.
    """

    pixels: Tensor
    loss: float


def adversarial_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Reward divergence where the predicted classes differ (Zhang et al. 2022, L_div).

    It is minus the mean over images of KL(teacher || student), counted as 0 where their largest logits agree in class.

    Args:
        student: logits, shape (images, classes).
        teacher: likewise.
    """
    # Where probabilities round to 0, only their logarithms have a finite gradient.
    each = functional.kl_div(student.log_softmax(1), teacher.log_softmax(1), reduction="none", log_target=True)
    return -(each.sum(1) * (student.argmax(1) != teacher.argmax(1))).mean()


@contextmanager
def batch_norm_distances(network: nn.Module) -> Iterator[list[Tensor]]:
    """Compare what batch normalisation sees with what it saw in training (Zhang et al. 2022, L_BN).

    Args:
        network: in evaluation mode.

    Yields:
        A list to which every pass of inputs adds, layer by layer, |variance - running variance| + |mean - running
        mean|, in Euclidean norms over the channels; nothing for a network without batch normalisation.
    """
    distances: list[Tensor] = []
    hooks = []
    try:
        for layer in network.modules():
            if isinstance(layer, BatchNorm):
                hooks.append(layer.register_forward_pre_hook(partial(_compare, layer.mean, layer.variance, distances)))
        yield distances
    finally:
        for hook in hooks:
            hook.remove()


def _compare(mean: Tensor, variance: Tensor, distances: list[Tensor], _: nn.Module, inputs: tuple[Tensor]) -> None:
    places = [dimension for dimension in range(inputs[0].dim()) if dimension != 1]
    seen_variance, seen_mean = torch.var_mean(inputs[0], places, correction=0)
    distances.append((variance - seen_variance).norm() + (mean - seen_mean).norm())


def synthesise(
    generator: Generator,
    teacher: nn.Module,
    student: nn.Module,
    noise: Tensor,
    labels: Tensor,
    *,
    view: View,
    objective: ImageLoss,
    steps: int,
    learning_rate: float,
    gradient_norm: float | None = None,
) -> Synthesised:
    """Train a generator and its noise, and keep the images of the step with the smallest loss.

    Teacher and student are in evaluation mode. Neither changes: no gradient, weight or running statistic is written.

    Args:
        generator: trained in place.
        noise: shape (images, latent).
        labels: the classes that the teacher should see, shape (images,).
        view: from pixels between 0 and 1 to the networks' inputs; the images that are returned are those before it.
        gradient_norm: longer gradients of the generator's weights are cut to it; None to cut none.

    Raises:
        ArithmeticError: the loss diverged.
    """
    noise = noise.clone().requires_grad_()
    learned = [*generator.parameters(), noise]
    optimiser = torch.optim.Adam(learned, lr=learning_rate, betas=_BETAS)
    best: Synthesised | None = None
    with batch_norm_distances(teacher) as distances:
        for _ in range(steps):
            distances.clear()
            pixels = generator(noise)
            inputs = view(pixels)
            taught = teacher(inputs)
            loss = objective(student(inputs), taught, labels, sum(distances))
            value = loss.item()
            if not math.isfinite(value):
                raise ArithmeticError(
                    f"the loss of the generator is not finite; allowed: a learning rate of it below {learning_rate:g}"
                )
            if best is None or value < best.loss:
                best = Synthesised(pixels.detach(), value)
            # Gradients of the networks' weights are not needed, so they are not computed.
            for tensor, gradient in zip(learned, torch.autograd.grad(loss, learned), strict=True):
                tensor.grad = gradient
            if gradient_norm is not None:
                nn.utils.clip_grad_norm_(generator.parameters(), gradient_norm)
            optimiser.step()
    assert best is not None
    return best
