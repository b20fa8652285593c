"""FisherMerge: the mean of the clients' weights, each coordinate weighted by its diagonal Fisher."""

from collections.abc import Sequence

import torch
from pydantic import NonNegativeFloat

from fedfisher_core.client.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.upload import Column, Upload
from fedfisher_core.client.weights import Weights
from fedfisher_core.methods.averaging import mean_parameters, proportions, weighted_sum
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server


@method("fisher_merge", uploads=(Weights, DiagonalFisher), reference="https://arxiv.org/abs/2111.09832")
def fisher_merge(server: Server, uploads: Sequence[Upload], *, fisher_floor: NonNegativeFloat = 1e-6) -> Aggregate:
    """Weight every coordinate by the clients' diagonal Fishers (Matena and Raffel 2022, equation 4).

    Args:
        server: not used.
        uploads: the weights w_i and the diagonal Fishers F_i.
        fisher_floor: coordinates whose total Fisher is smaller take the FedAvg value.

    Returns:
        sum_i p_i F_i w_i / sum_i p_i F_i.
    """
    weights = proportions(uploads)
    total = weighted_sum(Column(uploads, lambda upload: upload[DiagonalFisher].tensors), weights)
    products = (
        {name: fisher * upload[Weights].tensors[name] for name, fisher in upload[DiagonalFisher].tensors.items()}
        for upload in uploads
    )
    merged = weighted_sum(products, weights)
    mean = mean_parameters(uploads)
    informed = {name: (fisher >= fisher_floor) & (fisher > 0) for name, fisher in total.items()}
    return Aggregate.of(
        {
            name: torch.where(informed[name], merged[name] / torch.where(informed[name], fisher, 1), mean[name])
            for name, fisher in total.items()
        }
    )
