"""A student learns what each client's network says of inputs like the client's own, which the server draws."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.client.statistics.class_moments import ClassMoments
from fedfisher_core.client.statistics.input_moments import InputMoments
from fedfisher_core.client.statistics.principal import LowFrequencies
from fedfisher_core.engine.progress import track

Draw = Callable[[int, torch.Generator], Tensor]
"""Takes a number of inputs and a generator on the CPU; returns as many inputs, as networks take them."""


Likeness = Literal["directions", "variances", "power"]
"""What drawn inputs share with a client's: all that it sent, each number's mean and variance, or their power."""


@dataclass(frozen=True)
class Local:
    """A client as the server simulates it.

    Args:
        network: its trained network, in evaluation mode.
        draw: makes inputs like its own.
        share: p_i, its part of all examples.
    """

    network: nn.Module
    draw: Draw
    share: float


def reduced(moments: InputMoments, likeness: Likeness) -> InputMoments:
    """Keep a part of the moments that a client sent.

    Args:
        likeness: what is kept. `variances`: the mean, and the variance of every number of an input, but no
            covariances. `power`: the mean square of all numbers of all inputs, which makes white noise.
    """
    if likeness == "directions":
        return moments
    mean, directions, deviations = (moments.tensors[name] for name in ("mean", "directions", "deviations"))
    variances = directions.square().sum(0) + deviations.square()
    if likeness == "power":
        power = (mean.square() + variances).mean()
        mean, variances = torch.zeros_like(mean), power.expand_as(variances)
    return InputMoments({"mean": mean, "directions": directions[:0], "deviations": variances.sqrt()})


def gaussian(moments: InputMoments, shape: Sequence[int]) -> Draw:
    """Draw inputs of a shape from the normal distribution that a client sent.

    They are mean + sum_j z_j direction_j + e * deviations with independent standard normal z and e.
    """
    mean, directions, deviations = (moments.tensors[name] for name in ("mean", "directions", "deviations"))

    def draw(count: int, generator: torch.Generator) -> Tensor:
        along, apart = torch.randn(count, len(directions) + len(mean), generator=generator).split(
            [len(directions), len(mean)], dim=1
        )
        around = torch.addmm(mean, along.to(mean.device), directions)
        return torch.addcmul(around, apart.to(mean.device), deviations).reshape(count, *shape)

    return draw


def mixture(moments: ClassMoments, shape: Sequence[int]) -> Draw:
    """Draw inputs of a shape from the mixture of normal distributions, one a class, that a client sent."""
    draw = labelled_mixture(moments, shape)
    return lambda count, generator: draw(count, generator)[0]


def labelled_mixture(
    moments: ClassMoments, shape: Sequence[int]
) -> Callable[[int, torch.Generator], tuple[Tensor, Tensor]]:
    """Draw inputs of a shape from a mixture of normal distributions, one a class, and the class of each.

    Class c has probability p_c. The low frequencies are mean_c + sum_j z_j direction_j / sqrt(p_c) + e * deviations,
    over the directions j of the class. All frequencies get independent noise of the size of the residuals on every
    number. z and e are independent and standard normal.
    """
    names = ("shares", "means", "directions", "owners", "deviations", "residuals")
    shares, means, directions, owners, deviations, residuals = (moments.tensors[name] for name in names)
    low = LowFrequencies.of_size(shape, len(deviations))
    chances, owned = shares.cpu(), owners.long()
    # Directions of a class without examples are 0, and stay so.
    rows = directions * torch.where(shares > 0, shares, 1).rsqrt()[owned, None]

    def draw(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        labels = torch.multinomial(chances, count, replacement=True, generator=generator).to(owned.device)
        along, apart, beyond = (
            torch.randn(count, len(sizes), generator=generator).to(rows.device)
            for sizes in (rows, deviations, residuals)
        )
        within = means[labels] + (along * (labels[:, None] == owned)) @ rows + apart * deviations
        return torch.addcmul(low.fill(within), beyond, residuals).reshape(count, *shape), labels

    return draw


def distil(
    student: nn.Module,
    clients: Sequence[Local],
    *,
    steps: int,
    samples: int,
    learning_rate: float,
    generator: torch.Generator,
) -> float:
    """Minimise sum_i p_i E KL(f_i(x_i) || f(x_i)) over the student f, where x_i is drawn as client i's inputs are.

    In contrast to an ensemble, each network is asked only about inputs of its own client: where a client has no data,
    its opinion does not count. Adam's learning rate falls to 0 along a cosine. The student is in evaluation mode, as
    the clients' networks are: with statistics of a batch, or with dropout, equal networks would give different outputs.

    Args:
        student: trained in place, except for its running statistics.
        samples: inputs of each client in a step.
        generator: draws the inputs, on the CPU.

    Returns:
        The objective on the inputs of the last step.
    """
    optimiser = torch.optim.Adam(student.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    student.eval()
    parts: list[tuple[float, Tensor, Tensor]] = []
    for _ in track(range(steps), what="step"):
        drawn = [client.draw(samples, generator) for client in clients]
        optimiser.zero_grad()
        parts = []
        # One client after another, so that one graph is held. Both networks take the same inputs at a time: where they
        # say the same, the slope is exactly 0. The order is the one in which one backward pass of all would add up.
        for client, inputs in zip(reversed(clients), reversed(drawn), strict=True):
            with torch.no_grad():
                taught = client.network(inputs)
            said = student(inputs)
            said.backward(client.share / samples * (said.detach().softmax(1) - taught.softmax(1)))
            parts.append((client.share, taught, said.detach()))
        optimiser.step()
        schedule.step()
    return sum(share * _divergence(taught, said) for share, taught, said in reversed(parts))


def _divergence(taught: Tensor, said: Tensor) -> float:
    """Mean over inputs of KL(softmax(taught) || softmax(said))."""
    return functional.kl_div(said.log_softmax(1), taught.log_softmax(1), reduction="batchmean", log_target=True).item()
