"""Iso-C: the sum of task vectors with all singular values of a matrix made equal."""

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Column, Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import COUNTED_WEIGHTS, Summation, Sums, counted_weights, weighted_sum
from fedfisher_core.methods.shared.selection import Factors, keep_best, tries_several
from fedfisher_core.methods.shared.task_vectors import beyond_rounding, moved
from fedfisher_core.models.spec import Parameters


def _merge(server: Server, weights: Parameters, clients: float, scale: Sequence[float]) -> Aggregate:
    """Flatten the spectrum of sum_i w_i - N w_0."""
    merged = {}
    for name, total in weights.items():
        change = total - clients * server.initial[name].double()
        merged[name] = _flat_spectrum(change.flatten(1)).reshape(change.shape) if change.dim() > 1 else change / clients
    return keep_best(server, scale, lambda factor: moved(server, merged, factor), name="scale")


def _of_sums(server: Server, sums: Sums, *, scale: Factors) -> Aggregate:
    return _merge(server, sums.totals["weights"], sums.totals["clients"]["count"].item(), scale)


@method(
    "iso_c",
    uploads=(Weights,),
    reference="https://arxiv.org/abs/2502.04959",
    sums=Summation(counted_weights, _of_sums, COUNTED_WEIGHTS),
    shared_start=True,
    validates=tries_several("scale"),
)
def iso_c(
    server: Server,
    uploads: Sequence[Upload],
    *,
    scale: Annotated[
        Factors, Field(description="alpha, how far to go; of several, the best on the validation set is kept")
    ] = (1.0,),
) -> Aggregate:
    """Give all singular values of the summed change of a matrix their mean (Marczak et al. 2025).

    With sum_i tau_i = U S V^T, tau_i = w_i - w_0, a matrix moves by alpha mean(S) U V^T. As in the FusionBench library
    (tanganke/fusion_bench, `fusion_bench/method/isotropic_merging/iso_utils.py`), every client counts once, and a
    parameter that is no matrix moves by its mean change. Two things differ. Filter banks count as matrices, one filter
    a row. Directions in which only rounding changed the weights do not move, as their singular vectors are arbitrary.
    """
    weights = Column(
        uploads, lambda upload: {name: tensor.double() for name, tensor in upload[Weights].tensors.items()}
    )
    return _merge(server, weighted_sum(weights, [1.0] * len(uploads)), len(uploads), scale)


def _flat_spectrum(matrix: Tensor) -> Tensor:
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    return values.mean() * (left * beyond_rounding(values, matrix.shape)) @ right
