"""Inputs that jobs of a federation share: either artifacts, or the names of the jobs that make them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

R = TypeVar("R")


@dataclass(frozen=True)
class DataInputs(Generic[R]):
    """The decoded data set."""

    data: R


@dataclass(frozen=True)
class PartitionInputs(DataInputs[R]):
    """The decoded data set, and which client holds which example."""

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
        aggregate: the global model that clients get, after the server's optimiser.
    """

    aggregate: R


@dataclass(frozen=True)
class TrainingInputs(StartInputs[R]):
    """What a client trains from.

    Args:
        before: the client's last training, by its round; empty where the objective does not read it.
    """

    before: Mapping[str, R] = field(default_factory=dict)
