"""Splitting the training examples of a federation over its clients."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from fedfisher_core.data.makers import count_makers
from fedfisher_core.data.natural import makers_of
from fedfisher_core.data.partitions import Indices, Partition, split
from fedfisher_core.data.shifts import draw_shifts
from fedfisher_core.data.tensors import observe
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.store import Artifact, Content
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.federation import Federation
from fedfisher_core.federation.inputs import DataInputs
from fedfisher_core.federation.partition import INDICES, SCALING, SUMMARY, UNSEEN
from fedfisher_core.settings import NATURAL_SCHEMES

# Fields of a seeded setting that a split does not depend on.
_NO_MATTER = {"model", "objective", "server_optimiser"}


@dataclass(frozen=True)
class SplitData(Job[DataInputs[Artifact]]):
    """Split the training examples over clients and server, and decide how each client sees or scales its own."""

    kind: ClassVar[str] = "partitions"
    version: ClassVar[int] = 1
    action: ClassVar[str] = "split"

    federation: Federation

    @property
    def tags(self) -> tuple[str, ...]:
        """See `Job.tags`."""
        return (*super().tags, self.federation.setting.dataset)

    def settings(self) -> dict[str, Any]:
        """See `Job.settings`; federations that differ only in network, objective or server optimiser share it."""
        setting = self.federation.setting
        return {
            "partition": self.federation.settings.partition.described(),
            "cell": setting.model_dump(mode="json", exclude=_NO_MATTER | (set() if setting.shift else {"shift"})),
            "validation_size": self.federation.settings.data.validation_size,
            **self._unseen,
        }

    @property
    def _unseen(self) -> dict[str, int]:
        """The number of clients that take part in no round, where there are any."""
        return {UNSEEN: len(self.federation.unseen)} if self.federation.unseen else {}

    def compute(self, inputs: DataInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            InputError: the data can't be split as the settings ask.
        """
        settings, dataset = self.federation.settings, load_data(inputs.data)
        labels, groups, tests = dataset.train.labels.numpy(), dataset.train.groups, dataset.test.groups
        sizes = None
        if groups is not None:
            sizes = count_makers(dataset.group_names, groups.numpy(), None if tests is None else tests.numpy())
        partition = split(
            settings.partition,
            self.federation.setting,
            labels,
            classes=dataset.spec.classes,
            validation_size=settings.data.validation_size,
            groups=None if groups is None else groups.numpy(),
            group_sizes=sizes,
            coarse=dataset.coarse,
        )
        indices = {f"client_{i}": torch.from_numpy(held) for i, held in enumerate(partition.clients)}
        counts = partition.label_counts(labels, dataset.spec.classes)
        summary: dict[str, Any] = {
            "digest": partition.digest(),
            "label_counts": counts.tolist(),
            "class_names": dataset.class_names,
            **({"notes": dataset.notes} if dataset.notes else {}),
            **self._unseen,
        }
        if (shifts := draw_shifts(self.federation.setting, dataset.spec.classes)) is not None:
            summary["shifts"] = asdict(shifts)
        if self.federation.setting.scheme in NATURAL_SCHEMES and groups is not None:
            makers = makers_of(partition.clients, groups.numpy())
            summary["makers"] = [[dataset.group_names[one] for one in own] for own in makers]
            if tests is not None:
                summary["own_tests"] = [int(torch.isin(tests, torch.tensor(own)).sum()) for own in makers]
                taking_part = self.federation.participants
                if not any(summary["own_tests"][one] for one in taking_part):
                    raise InputError(
                        f"partition.column={settings.partition.column!r} of {self.federation.label}: none of the "
                        f"{len(taking_part)} clients that take part has test examples; allowed: values of which some "
                        "have test examples"
                    )
                everyone = torch.tensor([one for own in makers for one in own])
                summary["nobodys_tests"] = int(torch.isin(tests, everyone, invert=True).sum())
        tensors = {INDICES: indices | {"validation": torch.from_numpy(self._validation(partition))}}
        if dataset.spec.impute is not None:
            numbers = dataset.train.inputs
            scaling = observe([numbers[torch.from_numpy(held)] for held in partition.clients], dataset.spec.impute)
            tensors[SCALING] = vars(scaling)
            names = dataset.spec.feature_names
            summary["unscaled"] = [[names[i] for i in (std == 0).nonzero().flatten()] for std in scaling.std]
        return Content(tensors=tensors, documents={SUMMARY: summary})

    def _validation(self, partition: Partition) -> Indices:
        """Take the server's examples, except those that only an unseen client has."""
        if not self.federation.unseen or not len(partition.validation):
            return partition.validation
        unseen = np.concatenate([partition.clients[one] for one in self.federation.unseen])
        left = partition.validation[~np.isin(partition.validation, unseen)]
        if not len(left):
            raise InputError(
                f"data.validation_size={len(partition.validation)} of {self.federation.label}: unseen clients hold all "
                "of these images, which the server must not know; allowed: more, or 0"
            )
        return left
