"""Local training: SGD with momentum on tensors in memory, of one client or of several with stacked weights."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import mul

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim.sgd import sgd

from fedfisher_core.client.objectives.objective import Losses, cross_entropies
from fedfisher_core.data.tensors import Examples, augment
from fedfisher_core.engine.arithmetic import is_finite
from fedfisher_core.engine.errors import DivergedClientError
from fedfisher_core.models.layers import begin_training
from fedfisher_core.models.spec import ModelSpec, Parameters, parameters_of
from fedfisher_core.models.stacked import stack
from fedfisher_core.settings import TrainSettings


class Descent:
    """SGD with momentum and weight decay, equal to `torch.optim.SGD` to the last bit.

    That class is not used, because its first use loads torch's compiler. A weight on which the loss does not depend has
    the gradient 0.

    Args:
        network: trained in place.
        velocities: of earlier steps, one a weight, changed in place; None before the first.
    """

    def __init__(
        self, network: nn.Module, settings: TrainSettings, *, velocities: Sequence[Tensor] | None = None
    ) -> None:
        self._weights: list[Tensor] = [weight for weight in network.parameters() if weight.requires_grad]
        self._velocities: list[Tensor | None] = [*velocities] if velocities else [None] * len(self._weights)
        self._settings = settings

    def step(self, loss: Tensor) -> None:
        """Take one step on a scalar loss."""
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
    """Give a gradient the memory layout of its weight.

    The fused step goes through both in the order of memory. On a CPU it does so without a warning if the layouts
    differ. They differ when images have their channels last, as crops and flips leave them, because the gradients of
    filters then have their channels last too.
    """
    return gradient if gradient.stride() == as_.stride() else torch.empty_like(as_).copy_(gradient)


@dataclass(frozen=True)
class Trained:
    """The result of local training.

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
            weights: by name; they must not be changed afterwards.
            losses: mean training loss of each epoch.

        Raises:
            DivergedClientError: a weight is not finite.
        """
        parameters = {name: tensor.cpu() for name, tensor in weights.items()}
        for name, tensor in parameters.items():
            if not is_finite(tensor):
                raise DivergedClientError(f"weight {name!r} is not finite after {len(losses)} epochs")
        return cls(parameters=parameters, epoch_losses=tuple(losses))


def require_finite(losses: Sequence[float]) -> None:
    """Check that the mean training losses of the epochs so far are finite.

    Raises:
        DivergedClientError: one is not finite; it names the epoch.
    """
    for epoch, loss in enumerate(losses, start=1):
        if not math.isfinite(loss):
            raise DivergedClientError(f"training loss is {loss} in epoch {epoch}")


def count_steps(settings: TrainSettings, examples: int) -> int:
    """Number of gradient steps of a client's training; an epoch has ceil(examples / batch_size)."""
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
    views: Callable[[Tensor, torch.Generator], Tensor] | None = None,
) -> Trained:
    """Minimise the mean loss of a client's examples.

    Args:
        network: holds the initial weights; trained in place, on its own device.
        examples: on the same device.
        generator: draws the order of the examples, the augmentation and the dropout, on the CPU.
        losses: loss of each example of a batch; an objective's must be made for this network.
        augmented: whether each batch is cropped and mirrored at random.
        views: makes views of a batch, one after another, on which the network trains instead; None for the batch.

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
            # This takes half the time of brackets, which matters for steps as short as those of a linear head.
            inputs, labels = examples.inputs.index_select(0, batch), examples.labels.index_select(0, batch)
            if views is not None:
                inputs = views(inputs, generator)
                labels = labels.repeat(len(inputs) // len(labels))
            elif augmented:
                inputs = augment(inputs, generator)
            loss = losses(network(inputs), labels).mean()
            descent.step(loss)
            total += loss.detach() * len(batch)
            seen += len(batch)
        means.append(float(total) / seen)
        require_finite(means)
    return Trained.of(parameters_of(network), means)


def epochs_of(examples: Examples, settings: TrainSettings, generator: torch.Generator) -> Iterator[Sequence[Tensor]]:
    """Draw the batches of every epoch, as indices of examples; if steps are counted, the last epoch ends early.

    Args:
        generator: draws the order, on the CPU.
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


@dataclass(frozen=True)
class Member:
    """One of the clients that train together.

    Args:
        start: the weights before training.
        examples: at least one, on the device of the weights.
        generator: draws the order of the examples, on the CPU.
        losses: loss of each example of a batch, by outputs and labels.
    """

    start: Parameters
    examples: Examples
    generator: torch.Generator
    losses: Losses = cross_entropies


def train_together(
    spec: ModelSpec, members: Sequence[Member], settings: TrainSettings
) -> list[Trained | DivergedClientError]:
    """Train clients as `train` does, each on its own batches, with the same results up to rounding.

    Args:
        spec: the network; see `stack` for the layers that are allowed.
        members: at least one.

    Returns:
        The trained weights of each client, or the error of a client that diverged. It does not affect the others.
    """
    lengths = [count_steps(settings, len(one.examples)) for one in members]
    # Clients that train longest come first, so that those that still train are at the front of the stack.
    order = sorted(range(len(members)), key=lengths.__getitem__, reverse=True)
    ranked = [members[index] for index in order]
    weights = {name: torch.stack([one.start[name] for one in ranked]) for name in spec.shapes()}
    velocities = [torch.zeros_like(weight) for weight in weights.values()]
    stacked, steps = _Stacked.of(ranked, settings), []
    still_training = [sum(length > step for length in lengths) for step in range(max(lengths))]
    for count, stretch in groupby(still_training):
        network = stack(spec, {name: weight[:count] for name, weight in weights.items()}).train()
        descent = Descent(network, settings, velocities=[velocity[:count] for velocity in velocities])
        for _ in stretch:
            batch = stacked.draw(count)
            losses = _mean_losses(ranked[:count], network(batch.inputs), batch)
            # In the gradient of the sum, a client's weights get the gradient of the client's own loss.
            descent.step(losses.sum())
            steps.append(losses.detach())
    trained: dict[int, Trained | DivergedClientError] = {}
    columns = pad_sequence(steps).tolist()
    for rank, index in enumerate(order):
        means = _epoch_losses(columns[rank][: lengths[index]], len(members[index].examples), settings)
        try:
            require_finite(means)
            trained[index] = Trained.of({name: weight[rank].clone() for name, weight in weights.items()}, means)
        except DivergedClientError as error:
            trained[index] = error
    return [trained[index] for index in range(len(members))]


@dataclass(frozen=True)
class _Batch:
    """Batches of several clients, one after another; shorter ones are padded.

    Args:
        inputs: shape (clients * longest batch, ...).
        labels: int64, shape (clients, longest batch).
        sizes: of each client's batch, without padding.
    """

    inputs: Tensor
    labels: Tensor
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class _Stacked:
    """The examples of several clients, one client after another.

    Args:
        inputs: shape (examples of all, ...).
        labels: int64, shape (examples of all,).
        offsets: index of each client's first example, int64, shape (clients,).
        batches: those of each client that were not drawn yet.
    """

    inputs: Tensor
    labels: Tensor
    offsets: Tensor
    batches: tuple[Iterator[Tensor], ...]

    @classmethod
    def of(cls, members: Sequence[Member], settings: TrainSettings) -> "_Stacked":
        inputs = torch.cat([one.examples.inputs for one in members])
        sizes = torch.tensor([0, *(len(one.examples) for one in members[:-1])], device=inputs.device)
        return cls(
            inputs=inputs,
            labels=torch.cat([one.examples.labels for one in members]),
            offsets=sizes.cumsum(0),
            batches=tuple(chain.from_iterable(epochs_of(one.examples, settings, one.generator)) for one in members),
        )

    def draw(self, count: int) -> _Batch:
        """Draw the next batch of each of the first clients, padded with the client's first example."""
        batches = [next(one) for one in self.batches[:count]]
        rows = (pad_sequence(batches, batch_first=True) + self.offsets[:count, None]).flatten()
        return _Batch(
            # This takes half the time of brackets.
            inputs=self.inputs.index_select(0, rows),
            labels=self.labels.index_select(0, rows).unflatten(0, (count, -1)),
            sizes=tuple(map(len, batches)),
        )


def _mean_losses(members: Sequence[Member], outputs: Tensor, batch: _Batch) -> Tensor:
    """Mean loss of each client's own batch, shape (clients,).

    Args:
        outputs: of the clients' networks, shape (clients * longest batch, classes).
    """
    first, longest = members[0], batch.labels.shape[1]
    if set(batch.sizes) == {longest} and all(one.losses is first.losses for one in members):
        # Each loss depends on one example only, so one call serves all clients that share the function.
        return first.losses(outputs, batch.labels.flatten()).unflatten(0, (-1, longest)).mean(1)
    each = zip(members, outputs.chunk(len(members)), batch.labels, batch.sizes, strict=True)
    return torch.stack([one.losses(own[:size], labels[:size]).mean() for one, own, labels, size in each])


def _epoch_losses(steps: Sequence[float], examples: int, settings: TrainSettings) -> list[float]:
    """Mean loss of each epoch of a client, from the mean loss of each of its batches."""
    sizes = [min(settings.batch_size, examples - first) for first in range(0, examples, settings.batch_size)]
    epochs = [steps[first : first + len(sizes)] for first in range(0, len(steps), len(sizes))]
    return [sum(map(mul, losses, sizes)) / sum(sizes[: len(losses)]) for losses in epochs]
