"""The clients' networks as one teacher, and a student that learns from it on synthesised images."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.methods.distillation.synthesis import View
from fedfisher_core.models.evaluation import logits
from fedfisher_core.models.layers import begin_training


class Teacher(nn.Module):
    """The weighted sum of several networks' outputs before the softmax; the networks are in evaluation mode."""

    def __init__(self, networks: Sequence[nn.Module], weights: Sequence[float]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.weights = tuple(weights)
        self.eval()

    def forward(self, inputs: Tensor) -> Tensor:
        """From inputs, shape (batch, channels, height, width), to logits, shape (batch, classes)."""
        first, *others = (weight * one(inputs) for weight, one in zip(self.weights, self.networks, strict=True))
        return sum(others, first)


def distillation_loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Measure how far a student's softened prediction is from its teacher's (Hinton et al. 2015, section 2).

    It is temperature^2 KL(softmax(teacher / temperature) || softmax(student / temperature)), mean over images.

    Args:
        student: logits, shape (images, classes).
        teacher: likewise.
    """
    soft, target = (student / temperature).log_softmax(1), (teacher / temperature).log_softmax(1)
    return temperature**2 * functional.kl_div(soft, target, reduction="batchmean", log_target=True)


class Pool:
    """Images in memory with the teacher's logits.

    Args:
        teacher: in evaluation mode; asked once an image, or once a view of it.
        view: draws another view of images each time that they are shown; None to show them as they are.
    """

    def __init__(self, teacher: nn.Module, view: View | None = None) -> None:
        self._teacher = teacher
        self._view = view
        self._inputs: list[Tensor] = []
        self._logits: list[Tensor] = []

    def __len__(self) -> int:
        return sum(map(len, self._inputs))

    def add(self, inputs: Tensor) -> None:
        """Keep images, as networks take them, shape (images, channels, height, width)."""
        self._inputs.append(inputs)
        if self._view is None:
            self._logits.append(logits(self._teacher, inputs))

    def batches(self, size: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Go through all images once in random order.

        Args:
            size: images a batch; the last may be smaller.
            generator: draws the order, on the CPU.

        Yields:
            Inputs and the teacher's logits.
        """
        inputs = torch.cat(self._inputs)
        known = torch.cat(self._logits) if self._view is None else None
        for indices in torch.randperm(len(inputs), generator=generator).split(size):
            chosen = indices.to(inputs.device)
            if known is not None:
                yield inputs[chosen], known[chosen]
            elif self._view is not None:
                shown = self._view(inputs[chosen])
                yield shown, logits(self._teacher, shown)


def train_on_pool(
    student: nn.Module,
    optimiser: torch.optim.Optimizer,
    pool: Pool,
    *,
    temperature: float,
    batch_size: int,
    generator: torch.Generator,
) -> float:
    """Train a student in place by one pass over the pool; it is left in evaluation mode.

    Args:
        pool: at least one image.
        generator: draws the order of the images and the dropout, on the CPU.

    Returns:
        The mean loss of the images, each at its own step.
    """
    begin_training(student, generator)
    total = 0.0
    for inputs, taught in pool.batches(batch_size, generator):
        loss = distillation_loss(student(inputs), taught, temperature)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        total += loss.item() * len(inputs)
    student.eval()
    return total / len(pool)
