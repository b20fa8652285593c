"""What passes between rounds beside weights, and what clients keep: the memory of local objectives that have one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedfisher_core.models.spec import Parameters


@dataclass(frozen=True)
class Past:
    """What earlier rounds left to a client.

    Args:
        sent: what the server sends beside the weights, by name.
        kept: what the client kept when it last took part, by name; empty before.
        trained: the weights that it had after that training; None before.
    """

    sent: Mapping[str, Tensor] = field(default_factory=dict)
    kept: Mapping[str, Tensor] = field(default_factory=dict)
    trained: Parameters | None = None


NO_PAST = Past()
"""Of a client that takes part for the first time, with an objective that needs nothing of the server."""


@dataclass(frozen=True)
class LocalTraining:
    """A local training that has ended.

    Args:
        start: the weights that it started from.
        trained: the weights that it ended with.
        steps: how many gradient steps it took.
        learning_rate: of each.
        loss_of: mean cross-entropy of weights on the client's examples, in nats.
    """

    start: Parameters
    trained: Parameters
    steps: int
    learning_rate: float
    loss_of: Callable[[Parameters], float]


@dataclass(frozen=True)
class Report:
    """What one client sends for its objective, beside what the method asks for.

    Args:
        num_examples: that it holds.
        tensors: by name.
    """

    num_examples: int
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True)
class ServerMemory:
    """What the server keeps for an objective from round to round.

    Args:
        sent: what it sends to the clients of the next round, by name.
        held: what it keeps to itself, by name.
    """

    sent: Mapping[str, Tensor]
    held: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Exchange:
    """How a local objective speaks to the server; each function gets the objective's settings last.

    Args:
        begin: from the learnt weights that the first round starts from, the server's memory; clients know it without
            being told.
        close: from a client's training and past, what the client keeps, and what it reports.
        update: from the server's memory, all reports of a round and the number of all clients, the new memory.
    """

    begin: Callable[[Parameters, Any], ServerMemory]
    close: Callable[[LocalTraining, Past, Any], tuple[Mapping[str, Tensor], Mapping[str, Tensor]]]
    update: Callable[[ServerMemory, Sequence[Report], int, Any], ServerMemory]
