"""The attacker of a federation: its prior, its own images, and the evaluator that judges it."""

import hashlib
import time
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import torch
from torch import Tensor

from fedfisher_core.attack.evaluator import Evaluator, train_evaluator
from fedfisher_core.attack.experiment import PrivacyAttack
from fedfisher_core.attack.gan import Gan, train_gan
from fedfisher_core.data.specs import datasets
from fedfisher_core.data.tensors import Split
from fedfisher_core.errors import InputError
from fedfisher_core.layouts import require_images
from fedfisher_core.seeds import Stream, torch_generator
from fedfisher_core.settings import Cell, RunSettings
from fedfisher_core.steps.clients import TENSORS
from fedfisher_core.steps.context import WorkContext, chosen_device
from fedfisher_core.steps.data import load_data
from fedfisher_core.steps.partitions import load_partition
from fedfisher_core.store import Artifact, Content, Step, read_tensors

TARGET_CLIENT = 0
MEASURES = "measures.json"


@dataclass(frozen=True)
class AttackContext(WorkContext):
    """The settings of a privacy attack, and what follows from them.

    Args:
        settings: the experiment.
    """

    settings: PrivacyAttack

    @property
    def run(self) -> RunSettings:
        """How the work is carried out."""
        return self.settings.run

    @cached_property
    def device(self) -> torch.device:
        """The device that the settings choose."""
        return chosen_device(self.settings.run)


class Branch(IntEnum):
    """What a generator of the attack is for; numbers are part of the seed tree and never change."""

    AUXILIARY = 0
    PRIOR = 1
    INVERSION = 2
    REFERENCES = 3


def train_judge(context: AttackContext, data: Artifact) -> Artifact:
    """Train the evaluator on all training images, with the same draws for every seed.

    Args:
        context: the experiment.
        data: the decoded data set.

    Returns:
        The evaluator and its test accuracy.
    """
    step = Step(
        kind="evaluators",
        version=1,
        settings={"evaluator": context.settings.evaluator.model_dump(mode="json"), **context.numerics},
        inputs={"data": data.digest},
    )
    found = context.store.find(step)
    if found is not None:
        return found
    dataset = load_data(data)
    begun = time.perf_counter()
    evaluator = train_evaluator(
        pixels_of(dataset.train).to(context.device),
        dataset.train.labels.to(context.device),
        context.settings.evaluator,
        classes=dataset.spec.classes,
        generator=torch_generator(0, Stream.ATTACK),
    )
    seconds = time.perf_counter() - begun
    accuracy = evaluator.accuracy(pixels_of(dataset.test).to(context.device), dataset.test.labels.to(context.device))
    content = Content(
        tensors={TENSORS: evaluator.state()},
        documents={MEASURES: {"test_accuracy": accuracy}},
        timings={"seconds": seconds},
    )
    return context.store.write(step, content)


def train_prior(context: AttackContext, cell: Cell, target: int, data: Artifact, partition: Artifact) -> Artifact:
    """Train the attacker's GAN on images of other clients, without the target label.

    Args:
        context: the experiment.
        cell: which data set, how it is split, and the seed.
        target: the attacked label.
        data: the decoded data set.
        partition: who holds what.

    Returns:
        The GAN.

    Raises:
        InputError: there are too few auxiliary images, or the target label is among them.
        DivergedAttackError: its loss is not finite.
    """
    indices = auxiliary_indices(context, cell, target, data, partition)
    step = Step(
        kind="priors",
        version=1,
        settings={
            "gan": context.settings.gan.model_dump(mode="json"),
            "target": target,
            "seed": cell.seed,
            **context.numerics,
        },
        inputs={"data": data.digest, "indices": hashlib.sha256(indices.numpy().tobytes()).hexdigest()},
    )
    found = context.store.find(step)
    if found is not None:
        return found
    pixels = pixels_of(load_data(data).train, indices).to(context.device)
    begun = time.perf_counter()
    gan = train_gan(
        pixels,
        context.settings.gan,
        generator=generator_of(cell, target, Branch.PRIOR),
    )
    seconds = time.perf_counter() - begun
    return context.store.write(step, Content(tensors={TENSORS: gan.state()}, timings={"seconds": seconds}))


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


def auxiliary_indices(context: AttackContext, cell: Cell, target: int, data: Artifact, partition: Artifact) -> Tensor:
    """Draw the attacker's images from those of other clients.

    Args:
        context: the experiment.
        cell: which data set, how it is split, and the seed.
        target: the attacked label.
        data: the decoded data set.
        partition: who holds what.

    Returns:
        Indices of training images.

    Raises:
        InputError: there are too few, or the target label is among them.
    """
    threat = context.settings.threat
    clients = load_partition(partition).clients
    held = torch.cat([torch.from_numpy(clients[client]) for client in threat.sources])
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
    held = torch.from_numpy(load_partition(partition).clients[TARGET_CLIENT])
    return pixels_of(train, held[train.labels[held] == target])


def load_prior(context: AttackContext, cell: Cell, prior: Artifact) -> Gan:
    """Read what `train_prior` made.

    Args:
        context: the experiment.
        cell: names the data set.
        prior: the artifact.

    Returns:
        The GAN, on the experiment's device.
    """
    images = require_images(datasets.get(cell.dataset).inputs, "an attack")
    return Gan.load(read_tensors(prior, TENSORS), context.settings.gan, images=images, device=context.device)


def load_judge(context: AttackContext, cell: Cell, judge: Artifact) -> Evaluator:
    """Read what `train_judge` made.

    Args:
        context: the experiment.
        cell: names the data set.
        judge: the artifact.

    Returns:
        The evaluator, on the experiment's device.
    """
    spec = datasets.get(cell.dataset)
    return Evaluator.load(
        read_tensors(judge, TENSORS),
        context.settings.evaluator,
        images=require_images(spec.inputs, "an attack"),
        classes=spec.classes,
        device=context.device,
    )
