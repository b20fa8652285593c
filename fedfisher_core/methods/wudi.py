"""WUDI: a change whose difference from each client's lies outside the inputs that the client's own change reveals."""

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.task_vectors import merge_matrices, moved, task_vectors


@method(
    "wudi",
    uploads=(Weights,),
    reference="https://arxiv.org/abs/2503.08099",
    shared_start=True,
)
def wudi(
    server: Server,
    uploads: Sequence[Upload],
    *,
    steps: Annotated[PositiveInt, Field(description="of Adam, for each matrix")] = 300,
    learning_rate: Annotated[PositiveFloat, Field(description="of Adam")] = 1e-5,
) -> Aggregate:
    """Minimise the interference of a merged change with the clients' own (Cheng et al. 2025, WUDI-Merging).

    Gradient steps add multiples of a layer's inputs to the rows of its matrix, so that the rows of tau_i = w_i - w_0
    stand for client i's inputs. For each matrix, sum_i |(tau - tau_i) tau_i^T|^2 / |tau_i|^2 is minimised by Adam from
    sum_i tau_i: the paper's objective as the FusionBench library has it (tanganke/fusion_bench,
    `fusion_bench/method/wudi`), with the steps and the rate of its function; its own configuration takes 400 steps. A
    parameter that is no matrix moves by its mean change. Filter banks count as matrices, one filter a row. Adam moves a
    number by about steps times rate at most, so that the defaults stay close to the sum of all changes. This suits the
    small changes of fine-tuning.
    """
    merged = merge_matrices(
        task_vectors(server, uploads), lambda changes: _minimise(changes, steps=steps, learning_rate=learning_rate)
    )
    return Aggregate.of(moved(server, merged, 1.0))


def _minimise(changes: Tensor, *, steps: int, learning_rate: float) -> Tensor:
    """From shape (clients, rows, columns) to (rows, columns)."""
    # Clients that changed nothing are left out: for them 0 would be divided by |tau_i|^2 = 0.
    changed = changes[changes.square().sum((1, 2)) > 0]
    units = changed / torch.linalg.vector_norm(changed, dim=(1, 2), keepdim=True)
    moments = units.mT @ units
    curvature, targets = moments.sum(0), (changed @ moments).sum(0)
    merged = changes.sum(0)
    optimiser = torch.optim.Adam([merged], lr=learning_rate)
    for _ in range(steps):
        merged.grad = 2 * (merged @ curvature - targets)
        optimiser.step()
    return merged
