"""What jobs of a federation need in common: artifacts, or the names of the jobs that make them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

R = TypeVar("R")


@dataclass(frozen=True)
class DataInputs(Generic[R]):
    """What looks at all examples needs.

    Args:
        data: the decoded data set.
    """

    data: R


@dataclass(frozen=True)
class PartitionInputs(DataInputs[R]):
    """What looks at the examples of clients or server needs.

    Args:
        partition: who holds what.
    """

    partition: R


@dataclass(frozen=True)
class StartInputs(PartitionInputs[R]):
    """What a client has before its training, and the server before the first upload.

    Args:
        start: the initial weights, or what the server made in the round before.
    """

    start: R


@dataclass(frozen=True)
class ModelInputs(PartitionInputs[R]):
    """What a measure of a global model needs.

    Args:
        aggregate: the model, as clients get it: what the server's optimiser made of the last aggregate.
    """

    aggregate: R


@dataclass(frozen=True)
class TrainingInputs(StartInputs[R]):
    """What a client trains from.

    Args:
        before: its training when it last took part, by the round, where its objective looks at it; empty otherwise.
    """

    before: Mapping[str, R] = field(default_factory=dict)
