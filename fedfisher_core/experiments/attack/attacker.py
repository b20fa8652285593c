"""The attacker of a federation: its prior, its own images, and the evaluator that judges it."""

import hashlib
import time
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

import torch
from torch import Tensor

from fedfisher_core.attack.evaluator import Evaluator, train_evaluator
from fedfisher_core.attack.gan import Gan, train_gan
from fedfisher_core.data.specs import datasets
from fedfisher_core.data.tensors import Split
from fedfisher_core.errors import InputError
from fedfisher_core.experiments.attack.settings import AttackSettings
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.partition import held_by
from fedfisher_core.federation.place import Place
from fedfisher_core.jobs import Job, Numerics
from fedfisher_core.layouts import require_images
from fedfisher_core.seeds import Stream, torch_generator
from fedfisher_core.settings import Cell
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content, Step, read_document, read_tensors

R = TypeVar("R")
I = TypeVar("I")  # noqa: E741

TARGET_CLIENT = 0
MEASURES = "measures.json"
_TENSORS = "tensors.safetensors"


class Branch(IntEnum):
    """What a generator of the attack is for; numbers are part of the seed tree and never change."""

    AUXILIARY = 0
    PRIOR = 1
    INVERSION = 2
    REFERENCES = 3


@dataclass(frozen=True)
class JudgeInputs(Generic[R]):
    """What the evaluator is trained on.

    Args:
        data: the decoded data set.
    """

    data: R


@dataclass(frozen=True)
class TrainJudge(Job[JudgeInputs[Artifact]]):
    """Train the evaluator on all training images, with the same draws for every seed.

    Args:
        settings: the experiment.
        dataset: name of the data set.
        where: it computes.
        needs: names of the jobs before.
    """

    settings: AttackSettings
    dataset: str
    where: Numerics
    needs: JudgeInputs[str]

    @property
    def name(self) -> str:
        """See `Job.name`."""
        return f"evaluator of {self.dataset}"

    @property
    def numerics(self) -> Numerics:
        """See `Job.numerics`."""
        return self.where

    def size(self, inputs: JudgeInputs[Artifact]) -> float:
        """See `Job.size`."""
        return float(self.settings.evaluator.epochs * len(load_data(inputs.data).train))

    def step(self, inputs: JudgeInputs[Artifact]) -> Step:
        """See `Job.step`."""
        return Step(
            kind="evaluators",
            code=source_digest(type(self)),
            settings={"evaluator": self.settings.evaluator.model_dump(mode="json"), **self.where.described()},
            inputs={"data": inputs.data.digest},
        )

    def compute(self, inputs: JudgeInputs[Artifact]) -> Content:
        """See `Job.compute`; the test accuracy is measured beside."""
        dataset, device = load_data(inputs.data), torch.device(self.where.device)
        begun = time.perf_counter()
        evaluator = train_evaluator(
            pixels_of(dataset.train).to(device),
            dataset.train.labels.to(device),
            self.settings.evaluator,
            classes=dataset.spec.classes,
            generator=torch_generator(0, Stream.ATTACK),
        )
        seconds = time.perf_counter() - begun
        accuracy = evaluator.accuracy(pixels_of(dataset.test).to(device), dataset.test.labels.to(device))
        return Content(
            tensors={_TENSORS: evaluator.state()},
            documents={MEASURES: {"test_accuracy": accuracy}},
            timings={"seconds": seconds},
        )


@dataclass(frozen=True)
class PriorInputs(Generic[R]):
    """What the attacker's images are drawn from.

    Args:
        data: the decoded data set.
        partition: who holds what.
    """

    data: R
    partition: R


@dataclass(frozen=True)
class TargetJob(Job[I], Generic[I]):
    """A job of the attacker of one label.

    Args:
        settings: the experiment.
        place: the federation.
        target: the attacked label.
    """

    settings: AttackSettings
    place: Place
    target: int

    @property
    def numerics(self) -> Numerics:
        """See `Job.numerics`."""
        return self.place.numerics


@dataclass(frozen=True)
class TrainPrior(TargetJob[PriorInputs[Artifact]]):
    """Train the attacker's GAN on images of other clients, without the target label.

    All federations that share data set, target label and seed have the same prior.

    Args:
        needs: names of the jobs before.
    """

    needs: PriorInputs[str]

    @property
    def name(self) -> str:
        """See `Job.name`."""
        return f"GAN without label {self.target}: {self.place.cell.dataset} seed={self.place.cell.seed}"

    def size(self, inputs: PriorInputs[Artifact]) -> float:
        """See `Job.size`."""
        gan = self.settings.gan
        return float(gan.generator_steps * (1 + gan.critic_steps) * gan.batch_size)

    def step(self, inputs: PriorInputs[Artifact]) -> Step:
        """See `Job.step`.

        Raises:
            InputError: there are too few auxiliary images, or the target label is among them.
        """
        indices = auxiliary_indices(self.settings, self.place.cell, self.target, inputs.data, inputs.partition)
        return Step(
            kind="priors",
            code=source_digest(type(self)),
            settings={
                "gan": self.settings.gan.model_dump(mode="json"),
                "target": self.target,
                "seed": self.place.cell.seed,
                **self.numerics.described(),
            },
            inputs={"data": inputs.data.digest, "indices": hashlib.sha256(indices.numpy().tobytes()).hexdigest()},
        )

    def compute(self, inputs: PriorInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            DivergedAttackError: its loss is not finite.
        """
        cell = self.place.cell
        indices = auxiliary_indices(self.settings, cell, self.target, inputs.data, inputs.partition)
        pixels = pixels_of(load_data(inputs.data).train, indices).to(self.place.device)
        begun = time.perf_counter()
        gan = train_gan(pixels, self.settings.gan, generator=generator_of(cell, self.target, Branch.PRIOR))
        return Content(tensors={_TENSORS: gan.state()}, timings={"seconds": time.perf_counter() - begun})


def generator_of(cell: Cell, target: int, branch: Branch) -> torch.Generator:
    """Build the generator of one branch of the attack's seeds.

    Args:
        cell: its seed is the root.
        target: the attacked label.
        branch: what the generator is for.

    Returns:
        A generator on the CPU.
    """
    # Number 0 of the stream is the evaluator's.
    return torch_generator(cell.seed, Stream.ATTACK, 1 + len(Branch) * target + branch)


def auxiliary_indices(settings: AttackSettings, cell: Cell, target: int, data: Artifact, partition: Artifact) -> Tensor:
    """Draw the attacker's images from those of other clients.

    Args:
        settings: the experiment.
        cell: which data set, how it is split, and the seed.
        target: the attacked label.
        data: the decoded data set.
        partition: who holds what.

    Returns:
        Indices of training images.

    Raises:
        InputError: there are too few, or the target label is among them.
    """
    threat = settings.threat
    held = torch.cat([torch.from_numpy(held_by(partition, client)) for client in threat.sources])
    if len(held) < threat.auxiliary_images:
        raise InputError(
            f"threat.auxiliary_images={threat.auxiliary_images}, but clients {list(threat.sources)} of {cell.label} "
            f"hold {len(held)} images; allowed: at most as many"
        )
    order = torch.randperm(len(held), generator=generator_of(cell, target, Branch.AUXILIARY))
    drawn = held[order[: threat.auxiliary_images]]
    found = int((load_data(data).train.labels[drawn] == target).sum())
    if found:
        raise InputError(
            f"{found} auxiliary images of {cell.label} have the target label {target}, which would void the attack; "
            f"allowed: none"
        )
    return drawn


def accuracy_of_judge(judge: Artifact) -> float:
    """Read how often the evaluator is right.

    Args:
        judge: made by `TrainJudge`.

    Returns:
        Its accuracy on the test images, a fraction.
    """
    return read_document(judge, MEASURES)["test_accuracy"]


def pixels_of(split: Split, indices: Tensor | None = None) -> Tensor:
    """Scale images to between 0 and 1.

    Args:
        split: the decoded images.
        indices: of those that are wanted; None for all.

    Returns:
        float32, shape (images, channels, height, width).
    """
    images = split.inputs if indices is None else split.inputs[indices]
    return images.float() / 255


def private_pixels(data: Artifact, partition: Artifact, target: int) -> Tensor:
    """Select the attacked client's images of the target label.

    Args:
        data: the decoded data set.
        partition: who holds what.
        target: the label.

    Returns:
        Pixels between 0 and 1, shape (images, channels, height, width).
    """
    train = load_data(data).train
    held = torch.from_numpy(held_by(partition, TARGET_CLIENT))
    return pixels_of(train, held[train.labels[held] == target])


def load_prior(settings: AttackSettings, cell: Cell, prior: Artifact, device: torch.device) -> Gan:
    """Read what `TrainPrior` made.

    Args:
        settings: the experiment.
        cell: names the data set.
        prior: the artifact.
        device: where it goes.

    Returns:
        The GAN.
    """
    images = require_images(datasets.get(cell.dataset).inputs, "an attack")
    return Gan.load(read_tensors(prior, _TENSORS), settings.gan, images=images, device=device)


def load_judge(settings: AttackSettings, cell: Cell, judge: Artifact, device: torch.device) -> Evaluator:
    """Read what `TrainJudge` made.

    Args:
        settings: the experiment.
        cell: names the data set.
        judge: the artifact.
        device: where it goes.

    Returns:
        The evaluator.
    """
    spec = datasets.get(cell.dataset)
    return Evaluator.load(
        read_tensors(judge, _TENSORS),
        settings.evaluator,
        images=require_images(spec.inputs, "an attack"),
        classes=spec.classes,
        device=device,
    )
