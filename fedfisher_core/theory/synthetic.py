"""The synthetic regression data of the two-layer experiment (Appendix D.1, after Li et al. 2020)."""

import numpy as np
import torch
from torch import Tensor


def synthetic_clients(
    generator: np.random.Generator,
    *,
    clients: int,
    samples: int,
    dimensions: int,
    model_heterogeneity: float,
    data_heterogeneity: float,
    noise: float,
) -> tuple[Tensor, Tensor]:
    """Draw each client's samples from a distribution of its own.

    Client i draws a model w_i ~ N(u_i, I) with u_i ~ N(0, model_heterogeneity), and a centre v_i ~ N(B_i, I)
    with B_i ~ N(0, data_heterogeneity). Its inputs are N(v_i, S), S diagonal with S_jj = j^-1.2, scaled to
    norm 1 (Assumption 2); its targets are w_i . x + noise.

    Args:
        generator: source of randomness.
        clients: number of clients.
        samples: number of samples of each client, n.
        dimensions: p.
        model_heterogeneity: variance of u_i.
        data_heterogeneity: variance of B_i.
        noise: standard deviation of the targets' noise.

    Returns:
        Inputs of shape (clients, n, p) and targets of shape (clients, n), in double precision.
    """
    deviations = np.arange(1, dimensions + 1) ** -0.6
    inputs, targets = [], []
    for _ in range(clients):
        model = generator.normal(generator.normal(0, model_heterogeneity**0.5), 1, dimensions)
        centre = generator.normal(generator.normal(0, data_heterogeneity**0.5), 1, dimensions)
        points = generator.normal(centre, deviations, (samples, dimensions))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        inputs.append(points)
        targets.append(points @ model + generator.normal(0, noise, samples))
    return torch.from_numpy(np.stack(inputs)), torch.from_numpy(np.stack(targets))
