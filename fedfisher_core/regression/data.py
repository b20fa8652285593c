"""The true function, the intervals that clients see of its domain, and their samples."""

import math

import numpy as np
import torch
from torch import Tensor

from fedfisher_core.data.tensors import Examples
from fedfisher_core.regression.grid import FunctionName, RegressionGrid
from fedfisher_core.seeds import Stream, numpy_generator

LOW, HIGH = -1.0, 1.0
"""The domain, which the clients' intervals cover together."""


def interval_of(client: int, clients: int, overlap: float) -> tuple[float, float]:
    """Find which part of the domain a client sees.

    All intervals have the same length l = (HIGH - LOW) / (1 + (clients - 1) (1 - overlap)). Each begins
    (1 - overlap) l after the one before it, and the last ends where the domain does.

    Args:
        client: its number, from 0.
        clients: number of clients.
        overlap: part of its interval that a client shares with the next one, from 0 to 1.

    Returns:
        Lower and upper end.
    """
    length = (HIGH - LOW) / (1 + (clients - 1) * (1 - overlap))
    begin = LOW + client * (1 - overlap) * length
    return begin, begin + length


def true_values(function: FunctionName, inputs: Tensor) -> Tensor:
    """Evaluate the function that is learned, without noise.

    Args:
        function: its name.
        inputs: from -1 to 1, any shape.

    Returns:
        Of the same shape: sin(2 pi u), or sin(4 pi u^2) of a chirp, with u = (x + 1) / 2.
    """
    place = (inputs - LOW) / (HIGH - LOW)
    match function:
        case "sine":
            return torch.sin(2 * math.pi * place)
        case "chirp":
            return torch.sin(4 * math.pi * place**2)


def samples_of(client: int, grid: RegressionGrid, overlap: float, seed: int) -> Examples:
    """Draw a client's samples.

    The places within the interval and the noise do not depend on the overlap, so that overlaps differ in nothing but
    the intervals.

    Args:
        client: its number, from 0.
        grid: the settings.
        overlap: of the intervals.
        seed: of the federation.

    Returns:
        Inputs of shape (samples, 1) and, in place of labels, targets of shape (samples,), both float32.
    """
    generator = numpy_generator(seed, Stream.SAMPLE, client)
    low, high = interval_of(client, grid.clients, overlap)
    inputs = torch.from_numpy(low + (high - low) * generator.random(grid.samples))
    noise = torch.from_numpy(grid.noise * generator.normal(size=grid.samples))
    targets = true_values(grid.function, inputs) + noise
    return Examples(inputs=inputs[:, None].float(), labels=targets.float())


def domain_points(points: int) -> Tensor:
    """Spread inputs evenly over the domain, both ends included, float32, shape (points, 1)."""
    return torch.from_numpy(np.linspace(LOW, HIGH, points))[:, None].float()
