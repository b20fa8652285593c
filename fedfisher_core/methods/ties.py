"""TIES: the mean of trimmed task vectors over the clients that agree on a coordinate's sign."""

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
from fedfisher_core.methods.shared.task_vectors import merge_learnt, moved, task_vectors
from fedfisher_core.models.spec import Parameters


@method(
    "ties",
    uploads=(Weights,),
    reference="https://arxiv.org/abs/2306.01708",
    shared_start=True,
    validates=tries_several("scale"),
)
def ties(
    server: Server,
    uploads: Sequence[Upload],
    *,
    share: Annotated[float, Field(gt=0, le=1, description="k, the part of a client's numbers that stays")] = 0.2,
    scale: Annotated[
        Factors, Field(description="lambda, how far to go; of several, the best on the validation set is kept")
    ] = (1.0,),
) -> Aggregate:
    """Trim task vectors, elect signs, and average what agrees (Yadav et al. 2023, Algorithm 1).

    The largest k of the numbers of tau_i = w_i - w_0 stay, over all layers together. A coordinate's sign is that of the
    sum over clients, and tau is the mean over the clients with this sign. A sum of 0 gets the sign that most
    coordinates have. The result is w_0 + lambda tau. All of that is `src/utils/merge_utils.py` of the authors'
    repository (prateeky2806/ties-merging), whose cut keeps one number more. Their models share a pre-trained start,
    these the initial weights. Running statistics, which are measured rather than learnt, become their mean.
    """
    merged = merge_learnt(server, task_vectors(server, uploads), lambda changes: trimmed_mean(changes, share))
    return keep_best(server, scale, lambda factor: moved(server, merged, factor), name="scale")


def trimmed_mean(changes: Sequence[Parameters], share: float) -> Parameters:
    """Trim changes, elect a sign for each coordinate, and average those that have it.

    Args:
        share: see `ties`.
    """
    return _average_agreeing([_trim(change, share) for change in changes])


def _trim(change: Parameters, share: float) -> Parameters:
    """Set all but the largest numbers to 0; all that equal the smallest of these stay too."""
    sizes = torch.cat([tensor.abs().flatten() for tensor in change.values()])
    kept = max(1, int(share * len(sizes)))
    least = sizes.sort().values[len(sizes) - kept]
    return {name: torch.where(tensor.abs() >= least, tensor, 0) for name, tensor in change.items()}


def _average_agreeing(changes: Sequence[Parameters]) -> Parameters:
    sums = {name: torch.stack([change[name] for change in changes]).sum(0, dtype=torch.float64) for name in changes[0]}
    majority = torch.stack([tensor.sign().sum() for tensor in sums.values()]).sum().sign()
    return {
        name: _mean_of_sign([change[name] for change in changes], positive=torch.where(total == 0, majority, total) > 0)
        for name, total in sums.items()
    }


def _mean_of_sign(tensors: Sequence[Tensor], *, positive: Tensor) -> Tensor:
    """Average over the clients that have a coordinate's sign; 0 where none has it."""
    stacked = torch.stack(list(tensors))
    agreeing = torch.where(positive, stacked > 0, stacked < 0)
    return torch.where(agreeing, stacked, 0).sum(0, dtype=torch.float64) / agreeing.sum(0).clamp(min=1)
