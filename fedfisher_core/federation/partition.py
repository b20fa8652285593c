"""Who holds what, as jobs read it."""

import hashlib
from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from torch import Tensor

from fedfisher_core.data.scaling import Scaling
from fedfisher_core.data.shifts import Shifts
from fedfisher_core.data.tensors import Examples, select
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.inputs import PartitionInputs
from fedfisher_core.federation.place import POOLED, Place
from fedfisher_core.store import Artifact, read_document, read_tensors

INDICES = "indices.safetensors"
SCALING = "scaling.safetensors"
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


def digest_of_held(partition: Artifact, client: int) -> str:
    """Name what a client holds, whatever the others and the server hold.

    Args:
        partition: made by `SplitData`.
        client: its number, or POOLED.

    Returns:
        The SHA-256 of its indices.
    """
    return hashlib.sha256(held_by(partition, client).tobytes()).hexdigest()


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
        held = _held(inputs.partition, client)
        scale = training_scale(inputs.partition, held)
        return select(dataset.train, dataset.spec, held, scale=scale).to(place.device)
    # The pooled client has the examples as their owners see them.
    owners = participants_of(inputs.partition) if client == POOLED else (client,)
    each = []
    for one in owners:
        held = _held(inputs.partition, one)
        scale = training_scale(inputs.partition, held)
        each.append(select(dataset.train, dataset.spec, held, view=shifts.of(one), scale=scale))
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


@lru_cache(maxsize=8)
def scaling_of(partition: Artifact) -> Scaling | None:
    """Read how clients fill and scale numbers.

    Args:
        partition: made by `SplitData`.

    Returns:
        What each knows of its own; None where the constants of the data set scale all.
    """
    return None if unscaled_features(partition) is None else Scaling(**read_tensors(partition, SCALING))


def unscaled_features(partition: Artifact) -> list[list[str]] | None:
    """Read of which features a client's training examples give no scale, so that they are 0 for it.

    Args:
        partition: made by `SplitData`.

    Returns:
        Names, a list a client; None where the constants of the data set scale all.
    """
    return read_document(partition, SUMMARY).get("unscaled")


def maker_names(partition: Artifact) -> list[list[str]] | None:
    """Read whose examples each client holds.

    Args:
        partition: made by `SplitData`.

    Returns:
        Names, a list a client; None where no column decides the split.
    """
    return read_document(partition, SUMMARY).get("makers")


def own_test_sizes(partition: Artifact) -> list[int] | None:
    """Read how many test examples are each client's own.

    Args:
        partition: made by `SplitData`.

    Returns:
        Numbers, one a client; None where test examples are nobody's.
    """
    return read_document(partition, SUMMARY).get("own_tests")


def nobodys_test_size(partition: Artifact) -> int:
    """Read how many test examples are of makers whose training examples no client holds.

    Args:
        partition: made by `SplitData`.

    Returns:
        Their number; 0 as well where test examples are nobody's at all.
    """
    return read_document(partition, SUMMARY).get("nobodys_tests", 0)


def training_scale(partition: Artifact, examples: Tensor) -> Callable[[Tensor], Tensor] | None:
    """Say how training examples are scaled, each by the client that holds it.

    Args:
        partition: made by `SplitData`.
        examples: their indices, int64.

    Returns:
        A function of their numbers; None where the constants of the data set scale all.
    """
    scaling = scaling_of(partition)
    return None if scaling is None else partial(scaling.apply, clients=_holders(partition)[examples])


@lru_cache(maxsize=8)
def _holders(partition: Artifact) -> Tensor:
    """Number of the client that holds each training example."""
    held = [held_by(partition, client) for client in range(len(_indices(partition)) - 1)]
    holders = torch.empty(sum(map(len, held)), dtype=torch.int64)
    for client, indices in enumerate(held):
        holders[torch.from_numpy(indices)] = client
    return holders


def describe_view(partition: Artifact, client: int) -> dict[str, Any]:
    """Say what belongs to the key of a client's examples beside their indices, the seed and the client.

    Args:
        partition: made by `SplitData`.
        client: its number, or POOLED.

    Returns:
        JSON; nothing for a client that sees its examples as they are.
    """
    shifts = shifts_of(partition)
    if client != POOLED:
        return {} if shifts is None else shifts.of(client).described()
    if shifts is None and scaling_of(partition) is None:
        return {}
    sizes = [len(held_by(partition, one)) for one in participants_of(partition)]
    return {**({} if shifts is None else {"views": asdict(shifts)}), "sizes": sizes}


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
