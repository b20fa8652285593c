"""What a client holds and has trained, as jobs read it."""

import torch

from fedfisher_core.data.tensors import Examples, select
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.partition import held_by
from fedfisher_core.federation.place import Place
from fedfisher_core.models.spec import Parameters
from fedfisher_core.store import Artifact, read_tensors

TENSORS = "tensors.safetensors"


def load_trained(artifact: Artifact) -> Parameters:
    """Read a client's trained weights.

    Args:
        artifact: made by `TrainClient`.

    Returns:
        Named parameters on the CPU.
    """
    return read_tensors(artifact, TENSORS)


def examples_of(place: Place, data: Artifact, partition: Artifact, client: int) -> Examples:
    """Read a client's examples.

    Args:
        place: the federation.
        data: the decoded data set.
        partition: who holds what.
        client: its number, or POOLED.

    Returns:
        The examples as a network takes them, on the federation's device.
    """
    dataset = load_data(data)
    return select(dataset.train, dataset.spec, torch.from_numpy(held_by(partition, client))).to(place.device)
