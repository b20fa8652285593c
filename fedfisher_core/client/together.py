"""Local training of several clients in one call a step: their weights are stacked, and so are their batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import mul

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedfisher_core.client.descent import Descent
from fedfisher_core.client.objectives.objective import Losses, cross_entropies
from fedfisher_core.client.training import Trained, count_steps, epochs_of, require_finite
from fedfisher_core.data.tensors import Examples
from fedfisher_core.errors import DivergedClientError
from fedfisher_core.models.spec import ModelSpec, Parameters
from fedfisher_core.models.stacked import stack
from fedfisher_core.settings import TrainSettings


@dataclass(frozen=True)
class Member:
    """One of the clients that train together.

    Args:
        start: the weights that it starts from.
        examples: its data, at least one example, on the device of its weights.
        generator: draws the order of its examples, on the CPU.
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
        spec: the network; see `stack` for what it may be made of.
        members: the clients, at least one.
        settings: epochs or steps, learning rate, momentum, weight decay and batch size.

    Returns:
        The trained weights of each, or why there are none: the others are none the worse for it.
    """
    lengths = [count_steps(settings, len(one.examples)) for one in members]
    # Who trains longest comes first, so that whoever still trains is at the front of the stack.
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
            # The gradient of a client's weights is that of its own loss.
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
    """A batch of each of several clients, one client's after another's, shorter ones filled up.

    Args:
        inputs: shape (clients * longest batch, ...).
        labels: int64, shape (clients, longest batch).
        sizes: of each client's own batch.
    """

    inputs: Tensor
    labels: Tensor
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class _Stacked:
    """The examples of clients, one client's after another's.

    Args:
        inputs: shape (examples of all, ...).
        labels: int64, shape (examples of all,).
        offsets: where each client's begin, int64, shape (clients,).
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
        """Draw the next batch of each of the first clients, filled up with the client's first example."""
        batches = [next(one) for one in self.batches[:count]]
        rows = (pad_sequence(batches, batch_first=True) + self.offsets[:count, None]).flatten()
        return _Batch(
            # Half as long as by brackets.
            inputs=self.inputs.index_select(0, rows),
            labels=self.labels.index_select(0, rows).unflatten(0, (count, -1)),
            sizes=tuple(map(len, batches)),
        )


def _mean_losses(members: Sequence[Member], outputs: Tensor, batch: _Batch) -> Tensor:
    """Mean loss of each client's own batch.

    Args:
        members: the clients.
        outputs: of their networks, shape (clients * longest batch, classes).
        batch: what these are of.

    Returns:
        The means, shape (clients,).
    """
    first, longest = members[0], batch.labels.shape[1]
    if set(batch.sizes) == {longest} and all(one.losses is first.losses for one in members):
        # A loss is of one example, so that one call serves all who share it.
        return first.losses(outputs, batch.labels.flatten()).unflatten(0, (-1, longest)).mean(1)
    each = zip(members, outputs.chunk(len(members)), batch.labels, batch.sizes, strict=True)
    return torch.stack([one.losses(own[:size], labels[:size]).mean() for one, own, labels, size in each])


def _epoch_losses(steps: Sequence[float], examples: int, settings: TrainSettings) -> list[float]:
    """Mean loss of each epoch of a client.

    Args:
        steps: mean loss of each of its batches.
        examples: that it holds.
        settings: the batch size.
    """
    sizes = [min(settings.batch_size, examples - first) for first in range(0, examples, settings.batch_size)]
    epochs = [steps[first : first + len(sizes)] for first in range(0, len(steps), len(sizes))]
    return [sum(map(mul, losses, sizes)) / sum(sizes[: len(losses)]) for losses in epochs]
