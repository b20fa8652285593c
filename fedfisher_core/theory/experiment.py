"""Training error of the one-shot global model against width and against local steps (Figure 1)."""

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, field_validator
from torch import Tensor
from tqdm import tqdm

from fedfisher_core.theory.fisher import nearest_minimiser
from fedfisher_core.theory.network import local_models, training_error
from fedfisher_core.theory.synthetic import synthetic_clients

Grid = Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
NotNegative = Annotated[float, Field(ge=0)]


class TwoLayerSettings(BaseModel):
    """Settings of the two-layer experiment; the numbers of the paper's own are not known.

    Attributes:
        clients: number of clients.
        samples: number of samples of each client.
        dimensions: dimension of the inputs.
        model_heterogeneity: variance of the mean of a client's true model.
        data_heterogeneity: variance of the mean of a client's inputs.
        noise: standard deviation of the targets' noise.
        learning_rate: step size of the clients' gradient descent.
        widths: numbers of hidden units of the first curve.
        steps_of_widths: number of local steps all along the first curve.
        steps: numbers of local steps of the second curve.
        width_of_steps: number of hidden units all along the second curve.
        seeds: each draws its own data and initial weights.
        cutoff: eigenvalues of the Gram matrix up to this fraction of the largest count as 0.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    clients: PositiveInt = 5
    samples: PositiveInt = 20
    dimensions: PositiveInt = 10
    model_heterogeneity: NotNegative = 1.0
    data_heterogeneity: NotNegative = 1.0
    noise: NotNegative = 0.0
    learning_rate: PositiveFloat = 0.5
    widths: Grid = (16, 32, 64, 128, 256, 512, 1024, 2048)
    steps_of_widths: PositiveInt = 256
    steps: Grid = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
    width_of_steps: PositiveInt = 256
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = tuple(range(10))
    cutoff: Annotated[float, Field(ge=0, lt=1)] = 1e-10

    @field_validator("widths", "steps", "seeds")
    @classmethod
    def _increasing(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        if any(after <= before for before, after in itertools.pairwise(values)):
            raise ValueError("allowed: increasing numbers")
        return values


@dataclass(frozen=True)
class Errors:
    """Training errors of the models of one federation: mean of (z - y)^2 / 2 over the data of all clients.

    Args:
        fedfisher: of the FedFisher global model with full Fishers.
        fedavg: of the mean of the clients' models.
        local: of each client's own model on its own data.
    """

    fedfisher: float
    fedavg: float
    local: float


@dataclass(frozen=True)
class Point:
    """One point of a curve.

    Args:
        value: the width or the number of local steps.
        seeds: the errors, one for each seed.
    """

    value: int
    seeds: tuple[Errors, ...]

    @property
    def mean(self) -> Errors:
        """Mean over seeds."""
        return self._summary(statistics.fmean)

    @property
    def deviation(self) -> Errors:
        """Standard deviation of the population over seeds."""
        return self._summary(statistics.pstdev)

    def _summary(self, summarise: Callable[[Sequence[float]], float]) -> Errors:
        return Errors(
            fedfisher=summarise([errors.fedfisher for errors in self.seeds]),
            fedavg=summarise([errors.fedavg for errors in self.seeds]),
            local=summarise([errors.local for errors in self.seeds]),
        )


@dataclass(frozen=True)
class TwoLayerResults:
    """The two curves.

    Args:
        settings: what they were measured with.
        widths: error against width (Figure 1a).
        steps: error against local steps (Figure 1b).
    """

    settings: TwoLayerSettings
    widths: tuple[Point, ...]
    steps: tuple[Point, ...]


def run(settings: TwoLayerSettings) -> TwoLayerResults:
    """Measure both curves.

    Args:
        settings: of the experiment.

    Returns:
        The curves, the same for the same settings.
    """
    by_width: dict[int, list[Errors]] = {width: [] for width in settings.widths}
    by_steps: dict[int, list[Errors]] = {steps: [] for steps in settings.steps}
    jobs = len(settings.seeds) * (len(settings.widths) + 1)
    with tqdm(total=jobs, desc="two-layer networks", disable=None) as progress:
        for seed in settings.seeds:
            for width in settings.widths:
                by_width[width] += _measure(settings, seed, width, [settings.steps_of_widths])
                progress.update()
            measured = _measure(settings, seed, settings.width_of_steps, settings.steps)
            for steps, errors in zip(settings.steps, measured, strict=True):
                by_steps[steps].append(errors)
            progress.update()
    return TwoLayerResults(
        settings=settings,
        widths=tuple(Point(width, tuple(errors)) for width, errors in by_width.items()),
        steps=tuple(Point(steps, tuple(errors)) for steps, errors in by_steps.items()),
    )


def _measure(settings: TwoLayerSettings, seed: int, width: int, steps: Sequence[int]) -> list[Errors]:
    inputs, targets = synthetic_clients(
        np.random.default_rng([seed, 0]),
        clients=settings.clients,
        samples=settings.samples,
        dimensions=settings.dimensions,
        model_heterogeneity=settings.model_heterogeneity,
        data_heterogeneity=settings.data_heterogeneity,
        noise=settings.noise,
    )
    signs, start = _initial_network(np.random.default_rng([seed, 1, width]), width, settings.dimensions)
    trained = local_models(start, signs, inputs, targets, learning_rate=settings.learning_rate, steps=steps)
    return [
        Errors(
            fedfisher=training_error(
                nearest_minimiser(weights, signs, inputs, cutoff=settings.cutoff), signs, inputs, targets
            ),
            fedavg=training_error(weights.mean(dim=0), signs, inputs, targets),
            local=training_error(weights, signs, inputs, targets),
        )
        for weights in trained
    ]


def _initial_network(generator: np.random.Generator, width: int, dimensions: int) -> tuple[Tensor, Tensor]:
    signs = generator.choice([-1.0, 1.0], width)
    return torch.from_numpy(signs), torch.from_numpy(generator.normal(size=(width, dimensions)))
