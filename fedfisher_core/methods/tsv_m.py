"""TSV-M: the leading singular vectors of all task vectors, made orthogonal to each other."""

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.selection import Factors, keep_best, tries_several
from fedfisher_core.methods.shared.task_vectors import beyond_rounding, merge_matrices, moved, task_vectors


@method(
    "tsv_m",
    uploads=(Weights,),
    reference="https://arxiv.org/abs/2412.00081",
    shared_start=True,
    validates=tries_several("scale"),
)
def tsv_m(
    server: Server,
    uploads: Sequence[Upload],
    *,
    scale: Annotated[
        Factors, Field(description="alpha, how far to go; of several, the best on the validation set is kept")
    ] = (1.0,),
) -> Aggregate:
    """Join the leading singular triples of the clients' changes (Gargiulo et al. 2025).

    Of each matrix of tau_i = w_i - w_0 = U_i S_i V_i^T, 1 / N of the singular triples stay. U = [U_1, ..., U_N] and V
    likewise are replaced by the nearest matrices with orthonormal columns, and the matrix moves by alpha U S V^T. As in
    the authors' repository (AntoAndGar/task_singular_vectors, `src/utils/TSVM_utils.py`), a parameter that is no matrix
    moves by its mean change. Three things differ. Filter banks count as matrices, one filter a row. At least one triple
    a client stays, where their code leaves a matrix of fewer rows than clients as it started. Directions in which a
    client changed nothing, or that U or V does not span, get nothing, where their code takes arbitrary ones.
    """
    merged = merge_matrices(task_vectors(server, uploads), _join)
    return keep_best(server, scale, lambda factor: moved(server, merged, factor), name="scale")


def _join(changes: Tensor) -> Tensor:
    """From shape (clients, rows, columns) to (rows, columns)."""
    left, values, right = torch.linalg.svd(changes, full_matrices=False)
    kept = max(1, values.shape[1] // len(changes))
    # Where nothing changed, the singular vectors are arbitrary, and must not displace others.
    real = beyond_rounding(values, changes.shape[1:])[:, :kept]
    columns = torch.cat(list(left[:, :, :kept] * real[:, None, :]), dim=1)
    rows = torch.cat(list(right[:, :kept] * real[:, :, None]), dim=0)
    return nearest_orthonormal(columns) * values[:, :kept].flatten() @ nearest_orthonormal(rows.T).T


def nearest_orthonormal(columns: Tensor) -> Tensor:
    """Find the nearest matrix whose columns are orthonormal; where they can't be, the nearest partial isometry.

    Args:
        columns: X, shape (rows, columns), in double precision.

    Returns:
        X (X^T X)^(-1/2), with the pseudo-inverse where the columns depend on each other.
    """
    left, values, right = torch.linalg.svd(columns, full_matrices=False)
    return left * beyond_rounding(values, columns.shape) @ right
