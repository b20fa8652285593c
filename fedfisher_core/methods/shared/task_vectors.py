"""Task vectors tau_i = w_i - w_0: how far each client moved from the weights w_0 that all started from.

Methods that merge them ask for a shared start. Clients that each started from other weights have no tau_i.
"""

from collections.abc import Callable, Mapping, Sequence, Set

import torch
from torch import Tensor

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.server import Server
from fedfisher_core.methods.shared.averaging import weighted_sum
from fedfisher_core.models.spec import Parameters


def task_vectors(server: Server, uploads: Sequence[Upload]) -> list[Parameters]:
    """Subtract the start w_0 from each client's weights w_i."""
    return [
        {name: tensor - server.initial[name] for name, tensor in upload[Weights].tensors.items()} for upload in uploads
    ]


def measured_names(server: Server) -> Set[str]:
    """Name the parameters that are measured rather than learnt: running statistics."""
    return server.spec.shapes().keys() - server.spec.learnt()


def with_mean_statistics(
    server: Server, merged: Mapping[str, Tensor], clients: Sequence[Parameters], weights: Sequence[float]
) -> Parameters:
    """Replace merged running statistics, which are measured rather than learnt, by the clients' weighted mean."""
    measured = measured_names(server)
    if not measured:
        return dict(merged)
    means = weighted_sum([{name: one[name] for name in measured} for one in clients], weights)
    return {name: means.get(name, tensor) for name, tensor in merged.items()}


def merge_learnt(
    server: Server, changes: Sequence[Parameters], merge: Callable[[Sequence[Parameters]], Parameters]
) -> Parameters:
    """Merge what training learnt; running statistics, which are measured, become their mean.

    Args:
        changes: tau_i, by name.
        merge: makes one change of the clients'.
    """
    measured = measured_names(server)
    merged = merge([{name: one for name, one in change.items() if name not in measured} for change in changes])
    means = {name: torch.stack([change[name] for change in changes]).mean(0, dtype=torch.float64) for name in measured}
    return {name: means[name] if name in measured else merged[name] for name in changes[0]}


def moved(server: Server, change: Parameters, scale: float) -> Parameters:
    """Go from the start along a merged task vector: w_0 + lambda tau, in single precision.

    Running statistics, which are measured, go the whole way.

    Args:
        change: tau, by name, in single or double precision.
        scale: lambda.
    """
    measured = measured_names(server)
    return {
        name: (server.initial[name] + (1.0 if name in measured else scale) * tensor).float()
        for name, tensor in change.items()
    }


def merge_matrices(changes: Sequence[Parameters], merge: Callable[[Tensor], Tensor]) -> Parameters:
    """Merge task vectors matrix by matrix, in double precision.

    A filter bank counts as the matrix with one filter a row. A parameter that is no matrix, such as a bias, is the mean
    over clients.

    Args:
        changes: tau_i, by name.
        merge: makes one matrix, shape (rows, columns), of the clients', shape (clients, rows, columns).
    """
    merged = {}
    for name, like in changes[0].items():
        stacked = torch.stack([change[name] for change in changes]).double()
        merged[name] = merge(stacked.flatten(2)).reshape(like.shape) if like.dim() > 1 else stacked.mean(0)
    return merged


def beyond_rounding(values: Tensor, shape: Sequence[int]) -> Tensor:
    """Which singular values of matrices are more than the rounding of weights that were sent in single precision.

    Args:
        values: in falling order, shape (..., values).
        shape: of a matrix.
    """
    return values > torch.finfo(torch.float32).eps * max(shape) * values[..., :1]
