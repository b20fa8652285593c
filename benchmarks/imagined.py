"""What a server could draw from in the place of one normal distribution a client; for `benchmarks.pseudo_inputs`."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.input_moments import DIRECTIONS, InputMoments
from fedfisher_core.data.tensors import Examples
from fedfisher_core.federation.federation import Federation
from fedfisher_core.methods.distillation.pseudo_inputs import Draw, gaussian

MORE = 4 * DIRECTIONS
Imagine = Callable[["Client"], Draw]


@dataclass(frozen=True)
class Client:
    """A client, with all that a variant may have it send.

    Args:
        network: its trained network, in evaluation mode.
        share: its part of all examples.
        examples: what it holds.
        federation: its federation.
        low: the smallest number that a pixel can be, normalised, in the shape of one input.
        high: the largest.
    """

    network: nn.Module
    share: float
    examples: Examples
    federation: Federation
    low: Tensor
    high: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""
        return tuple(self.examples.inputs.shape[1:])

    def local(self, examples: Examples) -> Local:
        """Make what statistics are computed from, of some examples."""
        federation = self.federation
        return Local(
            network=self.network,
            initial={},
            examples=examples,
            classes=federation.dataset.classes,
            batch_size=1,
            settings=federation.fisher,
            approximations=frozenset(),
            generator=torch.Generator(),
        )

    def moments(self, examples: Examples, directions: int = DIRECTIONS) -> InputMoments:
        """Compute what it sends, of some examples."""
        return InputMoments.compute(self.local(examples), directions=directions)

    def classes(self) -> list[Examples]:
        """Its examples, class by class, of the classes that it holds."""
        labels = self.examples.labels
        chosen = [labels == label for label in labels.unique()]
        return [Examples(self.examples.inputs[mask], labels[mask]) for mask in chosen]


def as_it_is(client: Client) -> Draw:
    """Draw from the normal distribution that the method sends."""
    return gaussian(client.moments(client.examples), client.shape)


def of_more_directions(client: Client) -> Draw:
    """Draw from the same distribution with more directions, about as many numbers as moments of each class have."""
    return gaussian(client.moments(client.examples, MORE), client.shape)


def clipped(imagine: Imagine) -> Imagine:
    """Bring what is drawn to the range of pixels."""

    def make(client: Client) -> Draw:
        draw = imagine(client)
        return lambda count, generator: draw(count, generator).clamp(client.low, client.high)

    return make


def class_means(client: Client) -> Draw:
    """Draw from a normal distribution of each class, of which all have the client's covariance within classes."""
    classes = client.classes()
    means = torch.stack([each.inputs.mean(0) for each in classes])
    apart = torch.cat([each.inputs - mean for each, mean in zip(classes, means, strict=True)])
    around = gaussian(client.moments(Examples(apart, client.examples.labels)), client.shape)
    shares = torch.tensor([float(len(each)) for each in classes])

    def draw(count: int, generator: torch.Generator) -> Tensor:
        chosen = torch.multinomial(shares, count, replacement=True, generator=generator)
        return means[chosen] + around(count, generator)

    return draw


def class_moments(directions: Callable[[int], int]) -> Imagine:
    """Draw from a normal distribution of each class, with moments of its own.

    Args:
        directions: that each class has, by the number of classes that a client holds.

    Returns:
        What makes the draws.
    """

    def make(client: Client) -> Draw:
        classes = client.classes()
        draws = [gaussian(client.moments(each, directions(len(classes))), client.shape) for each in classes]
        shares = torch.tensor([float(len(each)) for each in classes])

        def draw(count: int, generator: torch.Generator) -> Tensor:
            chosen = torch.multinomial(shares, count, replacement=True, generator=generator)
            counts = chosen.bincount(minlength=len(draws)).tolist()
            return torch.cat([one(number, generator) for one, number in zip(draws, counts, strict=True) if number])

        return draw

    return make
