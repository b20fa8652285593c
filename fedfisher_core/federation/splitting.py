"""Splitting the training examples of one federation over its clients."""

from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from fedfisher_core.data.partitions import split
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.partition import INDICES, SUMMARY
from fedfisher_core.federation.place import Place
from fedfisher_core.jobs import Job
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content, Step

R = TypeVar("R")


@dataclass(frozen=True)
class PartitionInputs(Generic[R]):
    """What a split needs.

    Args:
        data: the decoded data set.
    """

    data: R


@dataclass(frozen=True)
class SplitData(Job[PartitionInputs[Artifact]]):
    """Split the training examples over clients and server.

    Args:
        place: the federation.
        needs: names of the jobs before.
    """

    place: Place
    needs: PartitionInputs[str]

    @property
    def name(self) -> str:
        """See `Job.name`."""
        return f"split {self.place.label}"

    def step(self, inputs: PartitionInputs[Artifact]) -> Step:
        """See `Job.step`; federations that differ in the network alone share it."""
        settings = self.place.settings
        return Step(
            kind="partitions",
            code=source_digest(type(self)),
            settings={
                "partition": settings.partition.described(),
                "cell": self.place.cell.model_dump(mode="json", exclude={"model"}),
                "validation_size": settings.data.validation_size,
            },
            inputs={"data": inputs.data.digest},
        )

    def compute(self, inputs: PartitionInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            InputError: the data can't be split as the settings ask.
        """
        settings = self.place.settings
        dataset = load_data(inputs.data)
        labels = dataset.train.labels.numpy()
        partition = split(
            settings.partition,
            self.place.cell,
            labels,
            classes=dataset.spec.classes,
            validation_size=settings.data.validation_size,
            groups=None if dataset.train.groups is None else dataset.train.groups.numpy(),
        )
        indices = {f"client_{i}": torch.from_numpy(held) for i, held in enumerate(partition.clients)}
        counts = partition.label_counts(labels, dataset.spec.classes)
        summary = {"digest": partition.digest(), "label_counts": counts.tolist(), "class_names": dataset.class_names}
        return Content(
            tensors={INDICES: indices | {"validation": torch.from_numpy(partition.validation)}},
            documents={SUMMARY: summary},
        )
