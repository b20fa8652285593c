"""Splitting the training images of one cell over its clients."""

import torch

from fedfisher_core.data.partitions import Partition, split
from fedfisher_core.settings import Cell
from fedfisher_core.steps.context import Context
from fedfisher_core.steps.data import load_data
from fedfisher_core.store import Artifact, Content, Step, read_document, read_tensors

_INDICES = "indices.safetensors"
_SUMMARY = "partition.json"


def split_data(context: Context, cell: Cell, data: Artifact) -> Artifact:
    """Split the training images over clients.

    Args:
        context: the benchmark.
        cell: which data set, how it is split, and the seed.
        data: the decoded data set.

    Returns:
        Who holds what, and the server's validation set.

    Raises:
        InputError: the data can't be split as the settings ask.
    """
    settings = context.settings.partition
    step = Step(
        kind="partitions",
        version=1,
        settings={
            "partition": settings.described(),
            "cell": cell.model_dump(mode="json", exclude={"model"}),
            "validation_size": context.settings.data.validation_size,
        },
        inputs={"data": data.digest},
    )
    found = context.store.find(step)
    if found is not None:
        return found
    dataset = load_data(data)
    labels = dataset.train.labels.numpy()
    partition = split(
        settings,
        cell,
        labels,
        classes=dataset.spec.classes,
        validation_size=context.settings.data.validation_size,
        groups=None if dataset.train.groups is None else dataset.train.groups.numpy(),
    )
    indices = {f"client_{i}": torch.from_numpy(held) for i, held in enumerate(partition.clients)}
    counts = partition.label_counts(labels, dataset.spec.classes)
    summary = {"digest": partition.digest(), "label_counts": counts.tolist(), "class_names": dataset.class_names}
    content = Content(
        tensors={_INDICES: indices | {"validation": torch.from_numpy(partition.validation)}},
        documents={_SUMMARY: summary},
    )
    return context.store.write(step, content)


def load_partition(artifact: Artifact) -> Partition:
    """Read who holds what.

    Args:
        artifact: made by `split_data`.

    Returns:
        The partition.
    """
    indices = {name: tensor.numpy() for name, tensor in read_tensors(artifact, _INDICES).items()}
    clients = tuple(indices[f"client_{i}"] for i in range(len(indices) - 1))
    return Partition(clients=clients, validation=indices["validation"])


def label_counts(artifact: Artifact) -> list[list[int]]:
    """Read how many images of each class each client holds.

    Args:
        artifact: made by `split_data`.

    Returns:
        Counts, a row a client.
    """
    return read_document(artifact, _SUMMARY)["label_counts"]


def class_names(artifact: Artifact) -> tuple[str, ...]:
    """Read the names of the classes.

    Args:
        artifact: made by `split_data`.

    Returns:
        One name a class.
    """
    return tuple(read_document(artifact, _SUMMARY)["class_names"])
