"""Splitting the training examples of a federation over its clients, and which client holds which."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from torch import Tensor

from fedfisher_core.data.labels import count_makers
from fedfisher_core.data.natural import makers_of
from fedfisher_core.data.partitions import Indices, Partition, split
from fedfisher_core.data.shifts import Shifts, draw_shifts
from fedfisher_core.data.tensors import Examples, Scaling, View, observe, select
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.seeds import Stream, torch_generator
from fedfisher_core.engine.store import Artifact, Content, read_document, read_tensors, understood
from fedfisher_core.federation.canary import CANARY, CLIENT, draw_canary, plant
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.federation import POOLED, DataInputs, Federation, PartitionInputs
from fedfisher_core.settings import NATURAL_SCHEMES

INDICES = "indices.safetensors"
SCALING = "scaling.safetensors"
SUMMARY = "partition.json"

UNSEEN = "unseen_clients"
"""Key of the number of clients, the last ones, that take part in no round; absent where all may."""

# Fields of a seeded setting that a split does not depend on.
_NO_MATTER = {"model", "objective", "server_optimiser"}


def held_by(partition: Artifact, client: int) -> NDArray[np.int64]:
    """Read the indices of the training examples of a client, or of all for POOLED; they must not be changed."""
    indices = _indices(partition)
    if client == POOLED:
        return np.concatenate([indices[f"client_{i}"].numpy() for i in participants_of(partition)])
    return indices[f"client_{client}"].numpy()


def digest_of_held(partition: Artifact, client: int) -> str:
    """SHA-256 of the indices that a client holds, which does not depend on the others' or the server's."""
    return hashlib.sha256(held_by(partition, client).tobytes()).hexdigest()


def examples_of(federation: Federation, inputs: PartitionInputs[Artifact], client: int) -> Examples:
    """Read a client's examples as the client sees them and a network takes them, on the federation's device."""
    dataset, shifts = load_data(inputs.data), shifts_of(inputs.partition)
    has_canary = federation.settings.measures.canary is not None

    def read(one: int, view: View | None) -> Examples:
        held = _held(inputs.partition, one)
        scale = training_scale(inputs.partition, held)
        examples = select(dataset.train, dataset.spec, held, view=view, scale=scale)
        return plant(examples, inputs.partition, held) if has_canary else examples

    if shifts is None:
        return read(client, None).to(federation.device)
    # The pooled client sees each example as its owner does.
    owners = participants_of(inputs.partition) if client == POOLED else (client,)
    each = [read(one, shifts.of(one)) for one in owners]
    together = Examples(torch.cat([one.inputs for one in each]), torch.cat([one.labels for one in each]))
    return together.to(federation.device)


def _held(partition: Artifact, client: int) -> Tensor:
    return torch.from_numpy(held_by(partition, client))


@lru_cache(maxsize=8)
@understood
def participants_of(partition: Artifact) -> range:
    """Read which clients may take part in a round; the pooled client holds their examples."""
    summary = read_document(partition, SUMMARY)
    return range(len(summary["label_counts"]) - summary.get(UNSEEN, 0))


@lru_cache(maxsize=8)
@understood
def shifts_of(partition: Artifact) -> Shifts | None:
    """Read how clients see their examples; None where all see them as they are."""
    stored = read_document(partition, SUMMARY).get("shifts")
    return None if stored is None else TypeAdapter(Shifts).validate_python(stored)


@lru_cache(maxsize=8)
@understood
def scaling_of(partition: Artifact) -> Scaling | None:
    """Read how clients fill and scale numbers; None where the data set's constants scale all."""
    return None if unscaled_features(partition) is None else Scaling(**read_tensors(partition, SCALING))


@understood
def unscaled_features(partition: Artifact) -> list[list[str]] | None:
    """Read, for each client, the features that its training examples give no scale, so that they are 0 for it.

    None where the data set's constants scale all.
    """
    return read_document(partition, SUMMARY).get("unscaled")


@understood
def maker_names(partition: Artifact) -> list[list[str]] | None:
    """Read, for each client, the names of the makers of its examples; None where no column decides the split."""
    return read_document(partition, SUMMARY).get("makers")


@understood
def own_test_sizes(partition: Artifact) -> list[int] | None:
    """Read how many test examples each client has; None where test examples belong to no client."""
    return read_document(partition, SUMMARY).get("own_tests")


@understood
def unassigned_test_size(partition: Artifact) -> int:
    """Read how many test examples have makers whose training examples no client holds.

    0 where test examples belong to no client at all.
    """
    return read_document(partition, SUMMARY).get("nobodys_tests", 0)


def training_scale(partition: Artifact, examples: Tensor) -> Callable[[Tensor], Tensor] | None:
    """Make the function that scales training examples, each by the client that holds it.

    None where the data set's constants scale all.

    Args:
        examples: their indices, int64.
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
    """Describe what the key of a client's examples has in addition to their indices, the seed and the client.

    Empty for a client that sees its examples as they are.
    """
    shifts = shifts_of(partition)
    if client != POOLED:
        return {} if shifts is None else shifts.of(client).described()
    if shifts is None and scaling_of(partition) is None:
        return {}
    sizes = [len(held_by(partition, one)) for one in participants_of(partition)]
    return {**({} if shifts is None else {"views": asdict(shifts)}), "sizes": sizes}


def validation_set(partition: Artifact) -> Tensor:
    """Read the indices, int64, of the training examples that the server holds."""
    return _indices(partition)["validation"]


@understood
def label_counts(partition: Artifact) -> list[list[int]]:
    """Read how many examples of each class each client holds, by true labels: one row a client."""
    return read_document(partition, SUMMARY)["label_counts"]


@understood
def class_names(partition: Artifact) -> tuple[str, ...]:
    """Read the names of the classes."""
    return tuple(read_document(partition, SUMMARY)["class_names"])


def data_notes(partition: Artifact) -> tuple[str, ...]:
    """Read sentences that a reader of the data set must know, such as how labels were matched by name."""
    return tuple(read_document(partition, SUMMARY).get("notes", ()))


@lru_cache(maxsize=8)
@understood
def _indices(partition: Artifact) -> dict[str, Tensor]:
    return read_tensors(partition, INDICES)


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
            **self._canary,
        }

    @property
    def _unseen(self) -> dict[str, int]:
        """The number of clients that take part in no round, where there are any."""
        return {UNSEEN: len(self.federation.unseen)} if self.federation.unseen else {}

    @property
    def _canary(self) -> dict[str, Any]:
        """How the canary is drawn, where there is one."""
        canary = self.federation.settings.measures.canary
        return {} if canary is None else {"canary": canary.model_dump(mode="json")}

    def compute(self, inputs: DataInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            InputError: the data can't be split as the settings ask, or have no room for the canary.
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
        canary = self._draw_canary(partition, dataset.train.inputs)
        counts = partition.label_counts(_with_canary(labels, canary), dataset.spec.classes)
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
        tensors = {INDICES: indices | {"validation": torch.from_numpy(self._validation(partition, canary))}, **canary}
        if dataset.spec.impute is not None:
            numbers = dataset.train.inputs
            scaling = observe([numbers[torch.from_numpy(held)] for held in partition.clients], dataset.spec.impute)
            tensors[SCALING] = vars(scaling)
            names = dataset.spec.feature_names
            summary["unscaled"] = [[names[i] for i in (std == 0).nonzero().flatten()] for std in scaling.std]
        return Content(tensors=tensors, documents={SUMMARY: summary})

    def _draw_canary(self, partition: Partition, texts: Tensor) -> dict[str, dict[str, Tensor]]:
        """Draw the canary, by the name of its file; nothing where there is none."""
        federation = self.federation
        settings = federation.settings.measures.canary
        if settings is None:
            return {}
        try:
            drawn = draw_canary(
                settings,
                texts,
                torch.from_numpy(partition.clients[CLIENT]),
                layout=federation.dataset.inputs,
                classes=federation.dataset.classes,
                generator=torch_generator(federation.setting.seed, Stream.CANARY),
            )
        except InputError as error:
            raise InputError(f"{federation.label}: {error}") from error
        return {CANARY: drawn}

    def _validation(self, partition: Partition, canary: Mapping[str, Mapping[str, Tensor]]) -> Indices:
        """Take the server's examples, except those that no client that takes part trains on."""
        absent = [partition.clients[one] for one in self.federation.unseen]
        absent += [drawn["places"].numpy() for drawn in canary.values()]
        if not absent or not len(partition.validation):
            return partition.validation
        left = partition.validation[~np.isin(partition.validation, np.concatenate(absent))]
        if not len(left):
            raise InputError(
                f"data.validation_size={len(partition.validation)} of {self.federation.label}: no client that takes "
                "part holds any of these examples; allowed: more, or 0"
            )
        return left


def _with_canary(labels: NDArray[np.int64], canary: Mapping[str, Mapping[str, Tensor]]) -> NDArray[np.int64]:
    """Replace the labels of the examples that gave way to the canary."""
    labels = labels.copy()
    for drawn in canary.values():
        labels[drawn["places"].numpy()] = int(drawn["label"])
    return labels
