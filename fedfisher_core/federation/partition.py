"""Who holds what, as jobs read it."""

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfisher_core.data.tensors import Examples, select
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.inputs import PartitionInputs
from fedfisher_core.federation.place import POOLED, Place
from fedfisher_core.store import Artifact, read_document, read_tensors

INDICES = "indices.safetensors"
SUMMARY = "partition.json"


def held_by(partition: Artifact, client: int) -> NDArray[np.int64]:
    """Read which training examples a client holds.

    Args:
        partition: made by `SplitData`.
        client: its number, or POOLED.

    Returns:
        Their indices; they must not be changed.
    """
    indices = _indices(partition)
    if client == POOLED:
        return np.concatenate([indices[f"client_{i}"].numpy() for i in range(len(indices) - 1)])
    return indices[f"client_{client}"].numpy()


def examples_of(place: Place, inputs: PartitionInputs[Artifact], client: int) -> Examples:
    """Read a client's examples.

    Args:
        place: the federation.
        inputs: the data set, and who holds what.
        client: its number, or POOLED.

    Returns:
        The examples as a network takes them, on the federation's device.
    """
    dataset = load_data(inputs.data)
    return select(dataset.train, dataset.spec, torch.from_numpy(held_by(inputs.partition, client))).to(place.device)


def validation_set(partition: Artifact) -> Tensor:
    """Read which training examples the server holds.

    Args:
        partition: made by `SplitData`.

    Returns:
        Their indices, int64.
    """
    return _indices(partition)["validation"]


def label_counts(partition: Artifact) -> list[list[int]]:
    """Read how many examples of each class each client holds.

    Args:
        partition: made by `SplitData`.

    Returns:
        Counts, a row a client.
    """
    return read_document(partition, SUMMARY)["label_counts"]


def class_names(partition: Artifact) -> tuple[str, ...]:
    """Read the names of the classes.

    Args:
        partition: made by `SplitData`.

    Returns:
        One name a class.
    """
    return tuple(read_document(partition, SUMMARY)["class_names"])


@lru_cache(maxsize=8)
def _indices(partition: Artifact) -> dict[str, Tensor]:
    return read_tensors(partition, INDICES)
