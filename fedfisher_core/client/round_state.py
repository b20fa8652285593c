"""The memory of local objectives between rounds: what they exchange besides weights, and what clients keep."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedfisher_core.models.spec import Parameters


@dataclass(frozen=True)
class Past:
    """What earlier rounds left to a client.

    Args:
        sent: what the server sends besides the weights, by name.
        kept: what the client kept when it last took part, by name; empty if it never did.
        trained: the weights after that training; None if there was none.
    """

    sent: Mapping[str, Tensor] = field(default_factory=dict)
    kept: Mapping[str, Tensor] = field(default_factory=dict)
    trained: Parameters | None = None


NO_PAST = Past()
"""The past of a client that takes part for the first time, if its objective needs nothing from the server."""


@dataclass(frozen=True)
class LocalTraining:
    """A finished local training.

    Args:
        start: the weights before training.
        trained: the weights after training.
        loss_of: mean cross-entropy of weights on the client's examples, in nats.
    """

    start: Parameters
    trained: Parameters
    steps: int
    learning_rate: float
    loss_of: Callable[[Parameters], float]


@dataclass(frozen=True)
class Report:
    """What one client sends for its objective, besides what the method asks for."""

    num_examples: int
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True)
class ServerMemory:
    """What the server keeps for an objective from round to round.

    Args:
        sent: what it sends to the clients of the next round, by name.
        held: what it does not send, by name.
    """

    sent: Mapping[str, Tensor]
    held: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Exchange:
    """What a local objective exchanges with the server; each function takes the objective's settings last.

    Args:
        begin: makes the server's memory from the learnt weights before the first round. Clients compute the same, so it
            is not sent.
        close: makes what the client keeps, and what it reports, from the client's training and past.
        update: makes the new memory from the server's memory, all reports of a round and the number of all clients.
    """

    begin: Callable[[Parameters, Any], ServerMemory]
    close: Callable[[LocalTraining, Past, Any], tuple[Mapping[str, Tensor], Mapping[str, Tensor]]]
    update: Callable[[ServerMemory, Sequence[Report], int, Any], ServerMemory]
