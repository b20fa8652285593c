"""The attacker of a federation: its prior, its own images, and the evaluator that judges it."""

import hashlib
import time
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

import torch
from torch import Tensor

from fedfisher_core.attack.evaluator import train_evaluator
from fedfisher_core.attack.gan import train_gan
from fedfisher_core.errors import InputError
from fedfisher_core.experiments.attack.settings import AttackSettings
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.inputs import DataInputs, PartitionInputs
from fedfisher_core.federation.partition import held_by
from fedfisher_core.federation.place import Place
from fedfisher_core.federation.uploads import TENSORS
from fedfisher_core.jobs import Job, digests_of
from fedfisher_core.seeds import Stream, torch_generator
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content, Step

I = TypeVar("I")  # noqa: E741

TARGET_CLIENT = 0
MEASURES = "measures.json"


class Branch(IntEnum):
    """What a generator of the attack is for; numbers are part of the seed tree and never change."""

    AUXILIARY = 0
    PRIOR = 1
    INVERSION = 2
    REFERENCES = 3


@dataclass(frozen=True)
class TrainJudge(Job[DataInputs[Artifact]]):
    """Train the evaluator on all training images, with the same draws for every seed.

    Args:
        settings: the experiment.
    """

    settings: AttackSettings

    def size(self, inputs: DataInputs[Artifact]) -> float:
        """See `Job.size`."""
        return float(self.settings.evaluator.epochs * len(load_data(inputs.data).train))

    def step(self, inputs: DataInputs[Artifact]) -> Step:
        """See `Job.step`."""
        settings = self.settings.model_dump(mode="json", include={"evaluator"}) | self.numerics.described()
        return Step(kind="evaluators", code=source_digest(type(self)), settings=settings, inputs=digests_of(inputs))

    def compute(self, inputs: DataInputs[Artifact]) -> Content:
        """See `Job.compute`; the test accuracy is measured beside."""
        dataset, device = load_data(inputs.data), torch.device(self.numerics.device)
        begun = time.perf_counter()
        evaluator = train_evaluator(
            pixels_of(dataset.train.inputs).to(device),
            dataset.train.labels.to(device),
            self.settings.evaluator,
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
    """A job of the attacker of one label.

    Args:
        settings: the experiment.
        place: the federation.
        target: the attacked label.
    """

    settings: AttackSettings
    place: Place
    target: int

    def described(self, *groups: str) -> dict[str, Any]:
        """What belongs to the key of all of these jobs, with some groups of the settings."""
        chosen = self.settings.model_dump(mode="json", include=set(groups))
        return {**chosen, "target": self.target, "seed": self.place.cell.seed, **self.numerics.described()}

    def generator(self, branch: Branch) -> torch.Generator:
        """Build the generator of one branch of the attack's seeds, on the CPU."""
        # Number 0 of the stream is the evaluator's.
        return torch_generator(self.place.cell.seed, Stream.ATTACK, 1 + len(Branch) * self.target + branch)

    def auxiliary(self, inputs: PartitionInputs[Artifact]) -> Tensor:
        """Draw the attacker's images from those of other clients.

        Args:
            inputs: the data set, and who holds what.

        Returns:
            Indices of training images.

        Raises:
            InputError: there are too few, or the target label is among them.
        """
        threat, label = self.settings.threat, self.place.cell.label
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

    All federations that share data set, target label and seed have the same prior.
    """

    def size(self, inputs: PartitionInputs[Artifact]) -> float:
        """See `Job.size`."""
        gan = self.settings.gan
        return float(gan.generator_steps * (1 + gan.critic_steps) * gan.batch_size)

    def step(self, inputs: PartitionInputs[Artifact]) -> Step:
        """See `Job.step`.

        Raises:
            InputError: there are too few auxiliary images, or the target label is among them.
        """
        indices = hashlib.sha256(self.auxiliary(inputs).numpy().tobytes()).hexdigest()
        return Step(
            kind="priors",
            code=source_digest(type(self)),
            settings=self.described("gan"),
            inputs={"data": inputs.data.digest, "indices": indices},
        )

    def compute(self, inputs: PartitionInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            DivergedAttackError: its loss is not finite.
        """
        pixels = pixels_of(load_data(inputs.data).train.inputs[self.auxiliary(inputs)]).to(self.place.device)
        begun = time.perf_counter()
        gan = train_gan(pixels, self.settings.gan, generator=self.generator(Branch.PRIOR))
        return Content(tensors={TENSORS: gan.state()}, timings={"seconds": time.perf_counter() - begun})


def pixels_of(images: Tensor) -> Tensor:
    """Scale images to between 0 and 1.

    Args:
        images: uint8, of any shape.

    Returns:
        float32, of the same shape.
    """
    return images.float() / 255


def private_images(inputs: PartitionInputs[Artifact], target: int) -> Tensor:
    """Select the attacked client's images of the target label.

    Args:
        inputs: the data set, and who holds what.
        target: the label.

    Returns:
        uint8, shape (images, channels, height, width).
    """
    train = load_data(inputs.data).train
    held = torch.from_numpy(held_by(inputs.partition, TARGET_CLIENT))
    return train.inputs[held[train.labels[held] == target]]
