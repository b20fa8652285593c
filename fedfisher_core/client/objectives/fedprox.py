"""FedProx: cross-entropy and a pull to the weights before training, fixed or adaptive (Li et al. 2020)."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from fedfisher_core.client.objectives.objective import Knowledge, Known, cross_entropies, objective
from fedfisher_core.client.round_state import Exchange, LocalTraining, Past, Report, ServerMemory
from fedfisher_core.models.spec import Parameters


@objective("fedprox", reference="https://arxiv.org/abs/1812.06127", reads=(Knowledge.WEIGHTS,))
def fedprox(
    logits: Tensor,
    labels: Tensor,
    known: Known,
    *,
    mu: Annotated[
        float,
        Field(
            ge=0,
            description="strength of the pull mu/2 |w - w_start|^2, as in the paper; twice the mu of "
            "a pull that is written mu |w - w_start|^2",
        ),
    ] = 0.01,
) -> Tensor:
    """FedProx: cross-entropy plus mu/2 |w - w_start|^2.

    The squared norm is over all weights. Each example has the same pull, so that the mean has it once. mu = 0 is plain
    cross-entropy.
    """
    start = known.start
    squares = [(weight - start[name]).square().sum() for name, weight in known.weights.items()]
    return cross_entropies(logits, labels) + mu / 2 * torch.stack(squares).sum()


def _begin(start: Parameters, settings: Any) -> ServerMemory:
    return ServerMemory(
        sent={"mu": torch.tensor(settings.first)}, held={"loss": torch.tensor(torch.inf), "falls": torch.tensor(0.0)}
    )


def _close(training: LocalTraining, past: Past, settings: Any) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
    """Report the loss at the end of training."""
    return {}, {"loss": torch.tensor(training.loss_of(training.trained))}


def _update(memory: ServerMemory, reports: Sequence[Report], clients: int, settings: Any) -> ServerMemory:
    """Raise mu by a step if the loss did not fall, and lower it by a step after `patience` falls in a row."""
    examples = sum(report.num_examples for report in reports)
    loss = sum(report.num_examples * float(report.tensors["loss"]) for report in reports) / examples
    mu, falls, before = float(memory.sent["mu"]), int(memory.held["falls"]), float(memory.held["loss"])
    if not loss < before:
        mu, falls = mu + settings.step, 0
    elif before < math.inf:
        # In the first round there is no earlier loss to compare with.
        falls += 1
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
    first: Annotated[float, Field(ge=0, description="mu in the first round, of mu/2 |w - w_start|^2")] = 1.0,
    step: Annotated[float, Field(gt=0, description="by which mu rises and falls")] = 0.1,
    patience: Annotated[int, Field(ge=1, description="rounds in a row in which the loss falls before mu does")] = 5,
) -> Tensor:
    """FedProx with a mu that rises when the loss does not fall, and falls when the loss has fallen for some rounds.

    The loss is the cross-entropy after each client's training, without the pull, averaged over the round's examples.
    Each client reports its own, as a payload of one number.
    """
    return fedprox(logits, labels, known, mu=float(known.past.sent["mu"]))
