"""Training error of the one-shot global model against width and against local steps (Figure 1)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedfisher_core.errors import DivergedClientError
from fedfisher_core.theory.fisher import nearest_minimiser
from fedfisher_core.theory.grid import TwoLayerGrid
from fedfisher_core.theory.network import local_models, training_error
from fedfisher_core.theory.synthetic import synthetic_clients


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
class SeedErrors:
    """The errors of one seed.

    Args:
        widths: along the first curve, one for each of the settings' widths.
        steps: along the second curve, one for each of the settings' steps.
    """

    widths: tuple[Errors, ...]
    steps: tuple[Errors, ...]


def measure_seed(settings: TwoLayerGrid, seed: int) -> SeedErrors:
    """Measure both curves on one federation.

    Args:
        settings: of the experiment; its seeds don't matter.
        seed: draws the data and the initial weights.

    Returns:
        The errors, the same for the same settings and seed.

    Raises:
        DivergedClientError: names the client whose training error is not finite, and where.
    """
    by_width = [_measure(settings, seed, width, [settings.steps_of_widths]) for width in settings.widths]
    return SeedErrors(
        widths=tuple(errors for (errors,) in by_width),
        steps=tuple(_measure(settings, seed, settings.width_of_steps, settings.steps)),
    )


def _measure(settings: TwoLayerGrid, seed: int, width: int, steps: Sequence[int]) -> list[Errors]:
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
    measured = []
    for number, weights in zip(steps, trained, strict=True):
        for client, own in enumerate(weights):
            if not math.isfinite(training_error(own, signs, inputs[client], targets[client])):
                raise DivergedClientError(
                    f"client {client} of seed={seed}: the training error is not finite at width {width} after "
                    f"{number} steps of two_layer.learning_rate={settings.learning_rate:g}"
                )
        solution = nearest_minimiser(weights, signs, inputs, cutoff=settings.cutoff)
        measured.append(
            Errors(
                fedfisher=training_error(solution, signs, inputs, targets),
                fedavg=training_error(weights.mean(dim=0), signs, inputs, targets),
                local=training_error(weights, signs, inputs, targets),
            )
        )
    return measured


def _initial_network(generator: np.random.Generator, width: int, dimensions: int) -> tuple[Tensor, Tensor]:
    signs = generator.choice([-1.0, 1.0], width)
    return torch.from_numpy(signs), torch.from_numpy(generator.normal(size=(width, dimensions)))
