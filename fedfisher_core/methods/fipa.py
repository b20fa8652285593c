"""FIPA: the clients' updates, each weighted by the low-rank Fisher of its client."""

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedfisher_core.client.statistics.fisher_directions import FisherDirections
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.fisher.products import flat
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import proportions
from fedfisher_core.methods.shared.task_vectors import measured_names, moved, task_vectors
from fedfisher_core.models.spec import parameters_of


@method(
    "fipa",
    uploads=(Weights, FisherDirections),
    reference="https://arxiv.org/abs/2601.13608",
    shared_start=True,
)
def fipa(
    server: Server,
    uploads: Sequence[Upload],
    *,
    elsewhere: Annotated[
        Literal["start", "mean"],
        Field(
            description="where no client has a direction: start, weights stay as all clients started, as in the paper; "
            "mean, they move as in FedAvg"
        ),
    ] = "start",
    cutoff: Annotated[
        float,
        Field(
            ge=0,
            lt=1,
            allow_inf_nan=False,
            description="eigenvalues of the summed Fisher up to this part of the largest count as 0, as do those that "
            "rounding makes",
        ),
    ] = 1e-6,
) -> Aggregate:
    """Move from the start by H^+ sum_i p_i F_i tau_i, with H = sum_i p_i F_i (Chang, He and Hao 2026).

    tau_i = w_i - w_0, and F_i = D_i^T D_i is the part of client i's Fisher that its leading eigenvectors hold. The
    Fisher is taken at the start w_0, and averaged over the client's examples. This is the shortest change that
    minimises sum_i p_i (tau - tau_i)^T F_i (tau - tau_i), FedFisher's objective with other Fishers. It is solved in the
    span of all rows sqrt(p_i) D_i, and the server takes the whole step. Running statistics become their mean.

    The rule is as others report it who read the paper; we could not read its section on the method, and found no code
    of the authors. The rank of 10 (`statistics.fisher_directions.rank`), the pseudo-inverse's cutoff and the way to the
    eigenvectors are ours. The paper uses FIPA for few rounds after many of FedAvg. From random weights, a few
    directions hold little of what training changes. `elsewhere: mean` adds what FedAvg does in all other directions,
    which the paper does not.
    """
    shares = proportions(uploads)
    # Directions have the network's order, and stored weights another.
    names = list(parameters_of(server.network(server.initial)))
    changes = [flat(change[name] for name in names).double() for change in task_vectors(server, uploads)]
    scaled = [
        share**0.5 * upload[FisherDirections].tensors["directions"].double()
        for share, upload in zip(shares, uploads, strict=True)
    ]
    rows = torch.cat(scaled)
    seen = [each @ change for each, change in zip(scaled, changes, strict=True)]
    mean = sum((share * change for share, change in zip(shares, changes, strict=True)), torch.zeros_like(changes[0]))
    base = mean if elsewhere == "mean" else torch.zeros_like(mean)
    found, directions = _shortest(rows, torch.cat(seen) - rows @ base, cutoff)
    like = [server.initial[name] for name in names]
    averaged = measured_names(server)
    measured = flat(torch.full(tensor.shape, name in averaged) for name, tensor in zip(names, like, strict=True))
    parts = torch.where(measured.to(mean.device), mean, base + found).split([tensor.numel() for tensor in like])
    change = {name: part.reshape(tensor.shape) for name, part, tensor in zip(names, parts, like, strict=True)}
    return Aggregate.of(moved(server, change, 1.0), directions=float(directions))


def _shortest(rows: Tensor, target: Tensor, cutoff: float) -> tuple[Tensor, int]:
    """The shortest x that minimises |M x - y|, without directions whose eigenvalue of M^T M is cut off.

    Args:
        rows: M, shape (m, d), double precision.
        target: y, shape (m,).

    Returns:
        M^T (M M^T)^+ y, and the number of directions that are kept.
    """
    values, vectors = torch.linalg.eigh(rows @ rows.T)
    # Where rows depend on each other, rounding makes small eigenvalues of those that are 0.
    least = max(cutoff, len(rows) * torch.finfo(values.dtype).eps)
    kept = values > least * values.max().clamp(min=0)
    inverse = torch.where(kept, 1 / torch.where(kept, values, 1), 0)
    return rows.T @ (vectors @ (inverse * (vectors.T @ target))), int(kept.sum())
