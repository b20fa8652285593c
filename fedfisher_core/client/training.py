"""Local training: SGD with momentum on tensors in memory."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedfisher_core.client.descent import Descent
from fedfisher_core.client.objectives.objective import Losses, cross_entropies
from fedfisher_core.data.tensors import Examples, augment
from fedfisher_core.errors import DivergedClientError
from fedfisher_core.finite import is_finite
from fedfisher_core.models.dropout import begin_training
from fedfisher_core.models.spec import Parameters, parameters_of
from fedfisher_core.settings import TrainSettings


@dataclass(frozen=True)
class Trained:
    """What local training leaves.

    Args:
        parameters: the trained weights, on the CPU.
        epoch_losses: mean training loss of each epoch; the last may be cut short.
    """

    parameters: Parameters
    epoch_losses: tuple[float, ...]

    @classmethod
    def of(cls, weights: Parameters, losses: Sequence[float]) -> "Trained":
        """Take weights after training.

        Args:
            weights: by name, the result's own.
            losses: mean training loss of each epoch.

        Returns:
            The weights and losses.

        Raises:
            DivergedClientError: a weight is not finite.
        """
        parameters = {name: tensor.cpu() for name, tensor in weights.items()}
        for name, tensor in parameters.items():
            if not is_finite(tensor):
                raise DivergedClientError(f"weight {name!r} is not finite after {len(losses)} epochs")
        return cls(parameters=parameters, epoch_losses=tuple(losses))


def require_finite(losses: Sequence[float]) -> None:
    """Check that the losses of a training are finite.

    Args:
        losses: mean training loss of each epoch so far.

    Raises:
        DivergedClientError: one is not finite; it names the epoch.
    """
    for epoch, loss in enumerate(losses, start=1):
        if not math.isfinite(loss):
            raise DivergedClientError(f"training loss is {loss} in epoch {epoch}")


def count_steps(settings: TrainSettings, examples: int) -> int:
    """Number of gradient steps of a client's training.

    Args:
        settings: steps, or epochs of ceil(examples / batch_size) steps.
        examples: of the client.

    Returns:
        The steps.
    """
    if settings.steps is not None:
        return settings.steps
    assert settings.epochs is not None
    return settings.epochs * -(-examples // settings.batch_size)


def train(
    network: nn.Module,
    examples: Examples,
    settings: TrainSettings,
    *,
    generator: torch.Generator,
    losses: Losses = cross_entropies,
    augmented: bool = False,
) -> Trained:
    """Minimise the mean loss of a client's examples.

    Args:
        network: holds the initial weights; trained in place, on its own device.
        examples: the client's data, on the same device.
        settings: epochs or steps, learning rate, momentum, weight decay and batch size.
        generator: draws the order of the examples, the augmentation and the dropout, on the CPU.
        losses: loss of each example of a batch; others than cross-entropy are made for this network.
        augmented: whether each batch is cropped and mirrored at random.

    Returns:
        The trained weights.

    Raises:
        DivergedClientError: the loss or a weight is not finite.
    """
    begin_training(network, generator)
    descent = Descent(network, settings)
    means: list[float] = []
    for batches in epochs_of(examples, settings, generator):
        total = torch.zeros((), device=examples.inputs.device)
        seen = 0
        for batch in batches:
            # Half as long as by brackets, which counts where a step is as short as that of a linear head.
            inputs = examples.inputs.index_select(0, batch)
            if augmented:
                inputs = augment(inputs, generator)
            loss = losses(network(inputs), examples.labels.index_select(0, batch)).mean()
            descent.step(loss)
            total += loss.detach() * len(batch)
            seen += len(batch)
        means.append(float(total) / seen)
        require_finite(means)
    return Trained.of(parameters_of(network), means)


def epochs_of(examples: Examples, settings: TrainSettings, generator: torch.Generator) -> Iterator[Sequence[Tensor]]:
    """Draw the batches of every epoch.

    Args:
        examples: the client's data.
        settings: epochs or steps, and the batch size.
        generator: draws the order, on the CPU.

    Yields:
        The batches of an epoch, as indices of examples; where steps are counted, the last epoch ends early.
    """
    left = settings.steps
    epochs = itertools.count() if settings.epochs is None else range(settings.epochs)
    for _ in epochs:
        order = torch.randperm(len(examples), generator=generator).to(examples.inputs.device)
        batches = order.split(settings.batch_size)
        yield batches[:left]
        if left is not None:
            left -= len(batches)
            if left <= 0:
                return
