"""FedProx whose pull follows the loss over rounds (Li et al. 2020, section 5.3.2)."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from fedfisher_core.client.objectives.fedprox import fedprox
from fedfisher_core.client.objectives.objective import Knowledge, Known, objective
from fedfisher_core.client.past import Exchange, LocalTraining, Past, Report, ServerMemory
from fedfisher_core.models.spec import Parameters


def _begin(start: Parameters, settings: Any) -> ServerMemory:
    return ServerMemory(
        sent={"mu": torch.tensor(settings.first)}, held={"loss": torch.tensor(torch.inf), "falls": torch.tensor(0.0)}
    )


def _close(training: LocalTraining, past: Past, settings: Any) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
    """Report the loss of the weights that the server sent."""
    return {}, {"loss": torch.tensor(training.loss_of(training.start))}


def _update(memory: ServerMemory, reports: Sequence[Report], clients: int, settings: Any) -> ServerMemory:
    """Raise mu by a step where the loss rose, and lower it by one after so many falls in a row."""
    examples = sum(report.num_examples for report in reports)
    loss = sum(report.num_examples * float(report.tensors["loss"]) for report in reports) / examples
    mu, falls, before = float(memory.sent["mu"]), int(memory.held["falls"]), float(memory.held["loss"])
    if loss > before:
        mu += settings.step
    # Before the first round there is no loss to fall from.
    falls = falls + 1 if loss < before < math.inf else 0
    if falls == settings.patience:
        mu, falls = max(0.0, mu - settings.step), 0
    return ServerMemory(
        sent={"mu": torch.tensor(mu)}, held={"loss": torch.tensor(loss), "falls": torch.tensor(float(falls))}
    )


@objective(
    "fedprox_adaptive",
    reference="https://arxiv.org/abs/1812.06127",
    reads=(Knowledge.WEIGHTS, Knowledge.PAST),
    exchange=Exchange(begin=_begin, close=_close, update=_update),
)
def fedprox_adaptive(
    logits: Tensor,
    labels: Tensor,
    known: Known,
    *,
    first: Annotated[float, Field(ge=0, description="mu in the first round")] = 1.0,
    step: Annotated[float, Field(gt=0, description="by which mu rises and falls")] = 0.1,
    patience: Annotated[int, Field(ge=1, description="rounds in a row in which the loss falls before mu does")] = 5,
) -> Tensor:
    """FedProx with a mu that rises when the loss rises, and falls when the loss has fallen for some rounds.

    The loss is the mean cross-entropy of the weights that the server sent, on the examples of the round's clients,
    each of which reports its own, as a payload of one number.

    Args:
        logits: f, shape (batch, classes).
        labels: y, int64, shape (batch,).
        known: the weights, those that training started from, and mu as the server sent it.
        first: mu in the first round.
        step: by which mu changes.
        patience: rounds in a row in which the loss falls before mu does.

    Returns:
        The losses, shape (batch,), in nats.
    """
    return fedprox(logits, labels, known, mu=float(known.past.sent["mu"]))
