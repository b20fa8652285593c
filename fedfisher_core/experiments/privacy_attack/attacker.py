"""The attacker of a federation: its prior, its own images, and the evaluator that judges its reconstructions."""

import time
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.seeds import Stream, torch_generator
from fedfisher_core.engine.store import Artifact, Content
from fedfisher_core.experiments.privacy_attack.settings import AttackSettings
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.federation import DataInputs, Federation, PartitionInputs
from fedfisher_core.federation.partition import held_by
from fedfisher_core.federation.uploads import TENSORS
from fedfisher_core.privacy.attack.evaluator import train_evaluator
from fedfisher_core.privacy.attack.gan import train_gan

I = TypeVar("I")  # noqa: E741

TARGET_CLIENT = 0
MEASURES = "measures.json"


class Branch(IntEnum):
    """What a generator of the attack is for. Numbers belong to the seed tree and never change."""

    AUXILIARY = 0
    PRIOR = 1
    INVERSION = 2
    REFERENCES = 3


@dataclass(frozen=True)
class TrainJudge(Job[DataInputs[Artifact]]):
    """Train the evaluator on all training images, with the same draws for every seed."""

    kind: ClassVar[str] = "evaluators"
    version: ClassVar[int] = 1
    action: ClassVar[str] = "judge"

    experiment: AttackSettings

    def settings(self) -> dict[str, Any]:
        """See `Job.settings`."""
        return self.experiment.model_dump(mode="json", include={"evaluator"}) | self.numerics.described()

    def compute(self, inputs: DataInputs[Artifact]) -> Content:
        """See `Job.compute`; the document has the test accuracy."""
        dataset, device = load_data(inputs.data), torch.device(self.numerics.device)
        begun = time.perf_counter()
        evaluator = train_evaluator(
            pixels_of(dataset.train.inputs).to(device),
            dataset.train.labels.to(device),
            self.experiment.evaluator,
            classes=dataset.spec.classes,
            generator=torch_generator(0, Stream.ATTACK),
        )
        seconds = time.perf_counter() - begun
        accuracy = evaluator.accuracy(pixels_of(dataset.test.inputs).to(device), dataset.test.labels.to(device))
        return Content(
            tensors={TENSORS: evaluator.state()},
            documents={MEASURES: {"test_accuracy": accuracy}},
            timings={"seconds": seconds},
        )


@dataclass(frozen=True)
class TargetJob(Job[I]):
    """A job of the attacker of one label."""

    experiment: AttackSettings
    federation: Federation
    target: int

    @property
    def tags(self) -> tuple[str, ...]:
        """See `Job.tags`."""
        return (*super().tags, self.federation.setting.dataset)

    def described(self, *groups: str) -> dict[str, Any]:
        """What belongs to the key of all of these jobs, with the named groups of the settings."""
        chosen = self.experiment.model_dump(mode="json", include=set(groups))
        return {**chosen, "target": self.target, "seed": self.federation.setting.seed, **self.numerics.described()}

    def generator(self, branch: Branch) -> torch.Generator:
        """Build the generator of one branch of the attack's seeds, on the CPU."""
        # Number 0 of the stream is the evaluator's.
        return torch_generator(self.federation.setting.seed, Stream.ATTACK, 1 + len(Branch) * self.target + branch)

    def auxiliary(self, inputs: PartitionInputs[Artifact]) -> Tensor:
        """Draw the indices of the attacker's images from the training images of other clients.

        Raises:
            InputError: there are too few, or the target label is among them.
        """
        threat, label = self.experiment.threat, self.federation.setting.label
        held = torch.cat([torch.from_numpy(held_by(inputs.partition, client)) for client in threat.sources])
        if len(held) < threat.auxiliary_images:
            raise InputError(
                f"threat.auxiliary_images={threat.auxiliary_images}, but clients {list(threat.sources)} of {label} "
                f"hold {len(held)} images; allowed: at most as many"
            )
        drawn = held[torch.randperm(len(held), generator=self.generator(Branch.AUXILIARY))[: threat.auxiliary_images]]
        found = int((load_data(inputs.data).train.labels[drawn] == self.target).sum())
        if found:
            raise InputError(
                f"{found} auxiliary images of {label} have the target label {self.target}, which would void the "
                f"attack; allowed: none"
            )
        return drawn


@dataclass(frozen=True)
class TrainPrior(TargetJob[PartitionInputs[Artifact]]):
    """Train the attacker's GAN on images of other clients, without the target label.

    All federations with the same data set, target label and seed have the same prior.
    """

    kind: ClassVar[str] = "priors"
    version: ClassVar[int] = 1
    action: ClassVar[str] = "prior"

    def settings(self) -> dict[str, Any]:
        """See `Job.settings`."""
        threat = self.experiment.threat
        drawn = {"auxiliary_images": threat.auxiliary_images, "sources": list(threat.sources)}
        return {**self.described("gan"), **drawn}

    def compute(self, inputs: PartitionInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            DivergedAttackError: its loss is not finite.
            InputError: there are too few auxiliary images, or the target label is among them.
        """
        pixels = pixels_of(load_data(inputs.data).train.inputs[self.auxiliary(inputs)]).to(self.federation.device)
        begun = time.perf_counter()
        gan = train_gan(pixels, self.experiment.gan, generator=self.generator(Branch.PRIOR))
        return Content(tensors={TENSORS: gan.state()}, timings={"seconds": time.perf_counter() - begun})


def pixels_of(images: Tensor) -> Tensor:
    """Scale uint8 images to float32 between 0 and 1."""
    return images.float() / 255


def private_images(inputs: PartitionInputs[Artifact], target: int) -> Tensor:
    """Select the attacked client's images of the target label, uint8, shape (images, channels, height, width)."""
    train = load_data(inputs.data).train
    held = torch.from_numpy(held_by(inputs.partition, TARGET_CLIENT))
    return train.inputs[held[train.labels[held] == target]]
