"""Who holds what, as jobs read it."""

from dataclasses import asdict
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from torch import Tensor

from fedfisher_core.data.shifts import Shifts
from fedfisher_core.data.tensors import Examples, select
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.inputs import PartitionInputs
from fedfisher_core.federation.place import POOLED, Place
from fedfisher_core.store import Artifact, read_document, read_tensors

INDICES = "indices.safetensors"
SUMMARY = "partition.json"

UNSEEN = "unseen_clients"
"""Where the summary says how many of the last clients take part in no round; it is silent where all may."""


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
        return np.concatenate([indices[f"client_{i}"].numpy() for i in participants_of(partition)])
    return indices[f"client_{client}"].numpy()


def examples_of(place: Place, inputs: PartitionInputs[Artifact], client: int) -> Examples:
    """Read a client's examples.

    Args:
        place: the federation.
        inputs: the data set, and who holds what.
        client: its number, or POOLED.

    Returns:
        The examples as the client sees them and a network takes them, on the federation's device.
    """
    dataset, shifts = load_data(inputs.data), shifts_of(inputs.partition)
    if shifts is None:
        return select(dataset.train, dataset.spec, _held(inputs.partition, client)).to(place.device)
    # The pooled client has the examples as their owners see them.
    owners = participants_of(inputs.partition) if client == POOLED else (client,)
    each = [select(dataset.train, dataset.spec, _held(inputs.partition, one), view=shifts.of(one)) for one in owners]
    together = Examples(torch.cat([one.inputs for one in each]), torch.cat([one.labels for one in each]))
    return together.to(place.device)


def _held(partition: Artifact, client: int) -> Tensor:
    return torch.from_numpy(held_by(partition, client))


@lru_cache(maxsize=8)
def participants_of(partition: Artifact) -> range:
    """Read which clients may take part in a round; the pooled client holds their examples.

    Args:
        partition: made by `SplitData`.

    Returns:
        Their numbers.
    """
    summary = read_document(partition, SUMMARY)
    return range(len(summary["label_counts"]) - summary.get(UNSEEN, 0))


@lru_cache(maxsize=8)
def shifts_of(partition: Artifact) -> Shifts | None:
    """Read how clients see their examples.

    Args:
        partition: made by `SplitData`.

    Returns:
        The views; None where all see them as they are.
    """
    stored = read_document(partition, SUMMARY).get("shifts")
    return None if stored is None else TypeAdapter(Shifts).validate_python(stored)


def describe_view(partition: Artifact, client: int) -> dict[str, Any]:
    """Say what belongs to the key of a client's examples beside their indices, the seed and the client.

    Args:
        partition: made by `SplitData`.
        client: its number, or POOLED.

    Returns:
        JSON; nothing for a client that sees its examples as they are.
    """
    shifts = shifts_of(partition)
    if shifts is None:
        return {}
    if client != POOLED:
        return shifts.of(client).described()
    sizes = [len(held_by(partition, one)) for one in participants_of(partition)]
    return {"views": asdict(shifts), "sizes": sizes}


def validation_set(partition: Artifact) -> Tensor:
    """Read which training examples the server holds.

    Args:
        partition: made by `SplitData`.

    Returns:
        Their indices, int64.
    """
    return _indices(partition)["validation"]


def label_counts(partition: Artifact) -> list[list[int]]:
    """Read how many examples of each class each client holds, by their true labels.

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
