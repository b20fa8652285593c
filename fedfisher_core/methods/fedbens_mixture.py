"""FedBEns with several modes a client: an ensemble of the modes of the product of mixtures of Laplace posteriors."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfisher_core.client.statistics.further_modes import FurtherFactors, FurtherWeights
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.fisher.layers import factored_layers, from_matrix, join, to_matrix
from fedfisher_core.methods.fedbens import (
    CheckEvery,
    LearningRate,
    LongestGradient,
    PriorVariance,
    Select,
    Steps,
    Temperature,
)
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import median_parameters
from fedfisher_core.models.spec import ModelSpec, Parameters

Matrices = dict[str, Tensor]


def _supports(spec: ModelSpec) -> None:
    """Refuse networks with diagonal factors, which its posteriors do not have."""
    factored_layers(spec.skeleton())


@method(
    "fedbens_mixture",
    uploads=(Weights, KFAC, FurtherWeights, FurtherFactors),
    reference="https://arxiv.org/abs/2503.15367",
    ranked=False,
    supports=_supports,
    validates=lambda settings: settings.select,
    continues=False,
)
def fedbens_mixture(
    server: Server,
    uploads: Sequence[Upload],
    *,
    prior_variance: PriorVariance = 0.1,
    temperature: Temperature = 0.1,
    steps: Steps = 300,
    learning_rate: LearningRate = 1e-3,
    longest_gradient: LongestGradient = 1.0,
    select: Select = True,
    check_every: CheckEvery = 30,
) -> Aggregate:
    """Climb to a mode of the product of mixtures from several starts, and predict with all (Talpini et al. 2025).

    Client i has M networks w_im, from starts that all clients share, and the posterior
    q_i = 1 / M sum_m N(w_im, P_im^-1) with P_im = n_i A_im (x) G_im / T + I / v. For each start,
    -sum_i log q_i(w) + (N - 1) log p0(w), p0 = N(0, v I), is minimised by Adam from the coordinate-wise median of the
    clients' networks of that start. That is `One_shot_FL/main_FedBEns_kron.py` of the authors' repository
    (jacopot96/FedBEns) with the three modes of its README. Without a selection that code returns the iterate of the
    lowest objective, and this the last. It is an ensemble: each client uploads M networks, and the mean of the
    probabilities of M networks predicts.
    """
    clients = [_components(upload, prior_variance, temperature) for upload in uploads]
    score = server.scorer() if select else None
    networks, chosen = [], []
    for mode, models in enumerate(zip(*(_models(upload) for upload in uploads), strict=True)):
        start = median_parameters(models)
        weights = {matrix: to_matrix(start, matrix) for matrix in clients[0][0].blocks}
        optimiser = torch.optim.Adam(list(weights.values()), lr=learning_rate)
        best, highest, kept = start, -1.0, 0
        for step in range(1, steps + 1):
            for matrix, gradient in _gradient(weights, clients, prior_variance).items():
                weights[matrix].grad = gradient
            torch.nn.utils.clip_grad_norm_(list(weights.values()), max_norm=longest_gradient)
            optimiser.step()
            if step == steps or (score is not None and (step - 1) % check_every == 0):
                found = _parameters(weights, start)
                reached = 0.0 if score is None else score(found)
                if reached > highest or score is None:
                    best, highest, kept = found, reached, step
        networks.append(best)
        chosen.append((f"selected_step_{mode}", float(kept)))
    return Aggregate(networks=tuple(networks), details=dict(chosen))


@dataclass(frozen=True)
class _Component:
    """One Gaussian of a client's mixture.

    Args:
        means: w_im, by matrix.
        blocks: n_i A (x) G / T, by matrix.
        half_log_determinant: of P_im.
        prior_variance: v.
    """

    means: Matrices
    blocks: dict[str, Kronecker]
    half_log_determinant: Tensor
    prior_variance: float

    def at(self, weights: Matrices) -> tuple[Tensor, Matrices]:
        """Logarithm of the density up to a constant, and its negative gradient P (w - w_im)."""
        logarithm, slopes = self.half_log_determinant.clone(), {}
        for matrix, block in self.blocks.items():
            way = weights[matrix] - self.means[matrix]
            slopes[matrix] = block.product(way) + way / self.prior_variance
            logarithm -= torch.sum(way * slopes[matrix], dtype=torch.float64) / 2
        return logarithm, slopes


def _models(upload: Upload) -> list[Parameters]:
    return [upload[Weights].tensors, *upload[FurtherWeights].modes()]


def _components(upload: Upload, prior_variance: float, temperature: float) -> list[_Component]:
    scale = upload.num_examples / temperature
    components = []
    for model, factors in zip(_models(upload), [upload[KFAC], *upload[FurtherFactors].modes()], strict=True):
        blocks = {matrix: Kronecker(one.inputs, scale * one.outputs) for matrix, one in factors.factors.items()}
        determinants = [_log_determinant(one, prior_variance) for one in blocks.values()]
        components.append(
            _Component(
                means={matrix: to_matrix(model, matrix) for matrix in blocks},
                blocks=blocks,
                half_log_determinant=torch.stack(determinants).sum() / 2,
                prior_variance=prior_variance,
            )
        )
    return components


def _log_determinant(block: Kronecker, prior_variance: float) -> Tensor:
    """Of A (x) G + I / v, in double precision."""
    inputs, outputs = (torch.linalg.eigvalsh(one.double()).clamp(min=0) for one in (block.inputs, block.outputs))
    return torch.log(outputs[:, None] * inputs + 1 / prior_variance).sum()


def _gradient(weights: Matrices, clients: Sequence[Sequence[_Component]], prior_variance: float) -> Matrices:
    """Of -sum_i log q_i + (N - 1) log p0: each client's components count as far as they explain the weights."""
    total = {matrix: one * ((1 - len(clients)) / prior_variance) for matrix, one in weights.items()}
    for components in clients:
        logarithms, slopes = zip(*(component.at(weights) for component in components), strict=True)
        for part, slope in zip(torch.softmax(torch.stack(logarithms), dim=0), slopes, strict=True):
            for matrix, one in slope.items():
                total[matrix] += part * one
    return total


def _parameters(weights: Matrices, like: Parameters) -> Parameters:
    named = join(from_matrix(values.clone(), matrix, like) for matrix, values in weights.items())
    return {name: named[name] for name in like}
