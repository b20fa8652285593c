"""FedFisher with the full Fisher for two-layer networks, without ever forming a Fisher.

Under the squared loss client i's Fisher is F_i = J_i^T J_i / n, with J_i the Jacobian of its outputs at its
weights (Claim 2). So the objective is the least-squares problem min |J (w - mean) - t|^2, with all clients'
J_i stacked in J and t_i = J_i (w_i - mean). Its minimiser nearest to the mean is mean + J^T (J J^T)^+ t, a
system of the size of the number of samples, whatever the width.
"""

import math

import torch
from torch import Tensor

from fedfisher_core.theory.network import active_units, combine_gradients


def gram_matrix(active: Tensor, inputs: Tensor) -> Tensor:
    """Form J J^T, with elements x_k . x_l times the share of units that both samples switch on.

    Args:
        active: the switched-on units of each sample, at the weights of its client, shape (samples, m).
        inputs: shape (samples, p).

    Returns:
        Shape (samples, samples).
    """
    return (inputs @ inputs.T) * (active @ active.T) / active.shape[1]


def nearest_minimiser(weights: Tensor, signs: Tensor, inputs: Tensor, *, cutoff: float = 1e-10) -> Tensor:
    """Find the FedFisher global model: the minimiser nearest to the mean of the clients (Eq. 7).

    Clients hold equal numbers of samples and weigh the same.

    Args:
        weights: the clients' trained weights, shape (clients, m, p).
        signs: the second layer, 1 or -1, shape (m,).
        inputs: the clients' inputs, shape (clients, n, p).
        cutoff: eigenvalues of J J^T up to this fraction of the largest count as 0.

    Returns:
        Shape (m, p).
    """
    mean = weights.mean(dim=0)
    active = active_units(weights, inputs)
    linear = ((inputs @ (weights - mean).mT) * active) @ signs / math.sqrt(len(signs))
    samples = inputs.flatten(0, 1)
    active = active.flatten(0, 1)
    eigenvalues, vectors = torch.linalg.eigh(gram_matrix(active, samples))
    kept = eigenvalues > cutoff * eigenvalues[-1]
    basis = vectors[:, kept]
    coefficients = basis @ ((basis.T @ linear.flatten()) / eigenvalues[kept])
    return mean + combine_gradients(coefficients, active, signs, samples)
