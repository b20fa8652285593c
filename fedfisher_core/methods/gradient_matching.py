"""Uncertainty-based gradient matching: changes weighted by diagonal Fishers, with a prior that counts once."""

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field, PositiveFloat

from fedfisher_core.client.statistics.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Column, Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import (
    COUNTED_WEIGHTS,
    Summation,
    Sums,
    counted_weights,
    weighted_by,
    weighted_sum,
)
from fedfisher_core.methods.shared.task_vectors import measured_names
from fedfisher_core.models.spec import Parameters


def _terms(upload: Upload) -> dict[str, Parameters]:
    return {**counted_weights(upload), **weighted_by(DiagonalFisher, upload)}


def _match(
    server: Server, *, fisher: Parameters, product: Parameters, weights: Parameters, clients: float, prior: float
) -> Aggregate:
    """Solve for the change, of sum_i n_i F_i, sum_i n_i F_i w_i, sum_i w_i and N."""
    merged, measured = {}, measured_names(server)
    for name, start in server.initial.items():
        if name in measured:
            merged[name] = (weights[name] / clients).float()
            continue
        start = start.double()
        matched = product[name] - fisher[name] * start + prior * (weights[name] - clients * start)
        merged[name] = (start + matched / (fisher[name] + prior)).float()
    return Aggregate.of(merged)


def _of_sums(server: Server, sums: Sums, *, prior: float) -> Aggregate:
    fisher = {name: sums.num_examples * tensor for name, tensor in sums.mean_weight("fisher").items()}
    # Where a Fisher is not known, its product with the weights is not known either.
    product = {name: torch.where(fisher[name] > 0, tensor, 0) for name, tensor in sums.totals["product"].items()}
    return _match(
        server,
        fisher=fisher,
        product=product,
        weights=sums.totals["weights"],
        clients=sums.totals["clients"]["count"].item(),
        prior=prior,
    )


@method(
    "gradient_matching",
    uploads=(Weights, DiagonalFisher),
    reference="https://arxiv.org/abs/2310.12808",
    sums=Summation(_terms, _of_sums, COUNTED_WEIGHTS),
    shared_start=True,
)
def gradient_matching(
    server: Server,
    uploads: Sequence[Upload],
    *,
    prior: Annotated[
        PositiveFloat, Field(description="delta, precision of the Gaussian around the start that clients trained under")
    ] = 1e-12,
) -> Aggregate:
    """Match the gradients of the merged model to the clients' (Daheim et al. 2024, with diagonal Fishers).

    Every client's posterior has the precision n_i F_i + delta, and their product counts the prior once.
    With tau_i = w_i - w_0 and H = sum_i n_i F_i + delta, the result is w_0 + tau,
    tau = sum_i H^-1 (n_i F_i + delta) tau_i. So changes are averaged where the Fishers are not 0, and added where they
    all vanish. An average of posteriors would not do that. This is `code/uncertainty_based_gradient_matching.py` of the
    authors' repository (UKPLab/iclr2024-model-merging) with n_i as scaling factors and delta as in its script. Its
    Fisher H_0 of the data that the start was trained on is 0, as the start is random here. Running statistics, which
    are measured rather than learnt, become their mean.
    """
    sizes = [float(upload.num_examples) for upload in uploads]
    ones = [1.0] * len(uploads)
    return _match(
        server,
        fisher=weighted_sum((weighted_by(DiagonalFisher, upload)["fisher"] for upload in uploads), sizes),
        product=weighted_sum((weighted_by(DiagonalFisher, upload)["product"] for upload in uploads), sizes),
        weights=weighted_sum(
            Column(uploads, lambda upload: {name: one.double() for name, one in upload[Weights].tensors.items()}), ones
        ),
        clients=len(uploads),
        prior=prior,
    )
