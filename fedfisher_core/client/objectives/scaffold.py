"""SCAFFOLD: gradients corrected by control variates of client and server (Karimireddy et al. 2020)."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedfisher_core.client.objectives.objective import Knowledge, Known, cross_entropies, objective
from fedfisher_core.client.round_state import Exchange, LocalTraining, Past, Report, ServerMemory
from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.spec import Parameters
from fedfisher_core.settings import TrainSettings


def _require_plain_descent(train: TrainSettings) -> None:
    """Refuse settings with which the change of the weights is not a sum of gradients."""
    for key in ("momentum", "weight_decay"):
        if getattr(train, key) != 0:
            raise InputError(
                f"train.{key}={getattr(train, key):g} with train.objective='scaffold', whose control variates are "
                "means of gradients; allowed: 0"
            )


def _begin(start: Parameters, settings: Any) -> ServerMemory:
    """Start with c = 0."""
    return ServerMemory(sent={name: torch.zeros_like(weight) for name, weight in start.items()})


def _close(training: LocalTraining, past: Past, settings: Any) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
    """Compute c_i+ = c_i - c + (x - y_i) / (K eta), the second option of line 12, and report the change of c_i."""
    scale = 1 / (training.steps * training.learning_rate)
    change = {
        name: scale * (training.start[name] - training.trained[name]) - variate for name, variate in past.sent.items()
    }
    kept = {name: step + past.kept[name] if past.kept else step for name, step in change.items()}
    return kept, change


def _update(memory: ServerMemory, reports: Sequence[Report], clients: int, settings: Any) -> ServerMemory:
    """Compute c + sum_i (c_i+ - c_i) / N over the clients of the round (line 17)."""
    return ServerMemory(
        sent={
            name: variate + sum(report.tensors[name] for report in reports) / clients
            for name, variate in memory.sent.items()
        }
    )


@objective(
    "scaffold",
    reference="https://arxiv.org/abs/1910.06378",
    reads=(Knowledge.WEIGHTS, Knowledge.PAST),
    exchange=Exchange(begin=_begin, close=_close, update=_update),
    require=_require_plain_descent,
)
def scaffold(logits: Tensor, labels: Tensor, known: Known) -> Tensor:
    """SCAFFOLD: cross-entropy plus <c - c_i, w>, whose gradient corrects each step by c - c_i.

    c is the server's control variate, and c_i the client's, zero before it has taken part. Each example has the whole
    correction, so that the mean has it once. Besides what the method asks for, the client uploads the change of its
    control variate, uncompressed.
    """
    past = known.past
    terms = [
        (weight * (past.sent[name] - past.kept[name] if past.kept else past.sent[name])).sum()
        for name, weight in known.weights.items()
    ]
    return cross_entropies(logits, labels) + torch.stack(terms).sum()
