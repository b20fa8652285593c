"""FisherMerge: the mean of the clients' weights, each coordinate weighted by its diagonal Fisher."""

from collections.abc import Sequence

import torch
from pydantic import NonNegativeFloat

from fedfisher_core.client.statistics.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import (
    Summation,
    Sums,
    mean_parameters,
    proportions,
    weighted_by,
    weighted_sum,
    weighted_terms,
)
from fedfisher_core.models.spec import Parameters


def _merge(fishers: Parameters, products: Parameters, mean: Parameters, fisher_floor: float) -> Aggregate:
    """Divide sum_i p_i F_i w_i by sum_i p_i F_i, and take the mean of the weights where the divisor is too small."""
    informed = {name: (fisher >= fisher_floor) & (fisher > 0) for name, fisher in fishers.items()}
    return Aggregate.of(
        {
            name: torch.where(
                informed[name], products[name] / torch.where(informed[name], fisher, 1), mean[name]
            ).float()
            for name, fisher in fishers.items()
        }
    )


def _of_sums(server: Server, sums: Sums, *, fisher_floor: float) -> Aggregate:
    return _merge(sums.mean_weight("fisher"), sums.mean("product"), sums.mean("weights"), fisher_floor)


@method(
    "fisher_merge",
    uploads=(Weights, DiagonalFisher),
    reference="https://arxiv.org/abs/2111.09832",
    sums=Summation(weighted_terms(DiagonalFisher), _of_sums),
)
def fisher_merge(server: Server, uploads: Sequence[Upload], *, fisher_floor: NonNegativeFloat = 1e-6) -> Aggregate:
    """Weight every coordinate by the clients' diagonal Fishers (Matena and Raffel 2022, equation 4).

    It is sum_i p_i F_i w_i / sum_i p_i F_i. With `fisher_floor` 0 this is FedFisher(Diag) in closed form.

    Args:
        fisher_floor: coordinates whose total Fisher is smaller take the FedAvg value.
    """
    weights = proportions(uploads)
    return _merge(
        weighted_sum((weighted_by(DiagonalFisher, upload)["fisher"] for upload in uploads), weights),
        weighted_sum((weighted_by(DiagonalFisher, upload)["product"] for upload in uploads), weights),
        mean_parameters(uploads),
        fisher_floor,
    )
