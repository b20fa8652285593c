"""Training one client, or several in one call a step."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar

import torch
from torch import nn

from fedfisher_core.client.objectives.objective import Knowledge, Losses
from fedfisher_core.client.round_state import NO_PAST, LocalTraining, Past
from fedfisher_core.client.training import Member, Trained, count_steps, train, train_together
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.code import code_of
from fedfisher_core.engine.costs import Stopwatch
from fedfisher_core.engine.errors import DivergedClientError, InputError, UnsupportedLayerError
from fedfisher_core.engine.seeds import Stream
from fedfisher_core.engine.store import Artifact, Content
from fedfisher_core.federation.federation import ClientJob, Federation, TrainingInputs
from fedfisher_core.federation.global_models import Files, Memory
from fedfisher_core.federation.mixed_ranks import with_rank_of
from fedfisher_core.federation.partition import examples_of
from fedfisher_core.federation.start import load_start
from fedfisher_core.federation.uploads import TENSORS
from fedfisher_core.models.evaluation import mean_loss
from fedfisher_core.models.spec import ModelSpec, Parameters, models
from fedfisher_core.models.stacked import require_stackable
from fedfisher_core.settings import FederationSettings

_KNOWABLE = frozenset({Knowledge.LABEL_COUNTS})
"""What an objective may read of a client whose weights and features are stacked with those of others."""
_MANY_CLIENTS, _SMALL_BATCH, _FEW_WEIGHTS = 100, 16, 500_000
"""With `auto`, clients train together from so many clients a round on, up to such batches and networks.

With 44,190 and 414,600 weights, each case that was timed was faster: 100 clients of 64 images at batches of 8 and 16 on
two processors, and 20 at batches of 16 on a GPU.
"""
_ON_PROCESSOR, _ON_GPU = 5, 10
"""Sizes of groups, chosen among those that were timed."""


@dataclass(frozen=True)
class TrainClient(ClientJob[TrainingInputs[Artifact]]):
    """Train one client."""

    kind: ClassVar[str] = "clients"
    version: ClassVar[int] = 1
    action: ClassVar[str] = "train"

    @property
    def described(self) -> dict[str, Any]:
        """How the client trains, as JSON has it."""
        train = self.federation.train.model_dump(mode="json", exclude_none=True, exclude={"objective", "together"})
        return {**train, **self.federation.objective.described()}

    @property
    def memory(self) -> Memory:
        """What the objective keeps from round to round."""
        return Memory(self.federation.objective, self.federation, self.round_number)

    def settings(self) -> dict[str, Any]:
        """See `Job.settings`."""
        code = code_of(models.get(self.federation.spec.name), *self.federation.objective.sources)
        return {"code": code, **self.chosen, **self.numerics.described()}

    @property
    def chosen(self) -> dict[str, Any]:
        """What a person chooses of the training."""
        federation = self.federation
        return {
            "model": {"name": federation.spec.identity, "bias": federation.settings.model.bias},
            "train": self.described,
            "augment": federation.dataset.augment,
            "seed": federation.setting.seed,
            "client": self.client,
            **({} if (sent := federation.spec_of(self.client)) == federation.spec else {"rank": sent.widths[0]}),
            **self.private(),
            **self.later,
        }

    def compute(self, inputs: TrainingInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            DivergedClientError: names the client whose training is not finite.
        """
        examples = examples_of(self.federation, inputs, self.client)
        start = with_rank_of(self.client, self.federation, load_start(inputs.start, self.federation.device))
        past = self.memory.of_client(inputs)
        watch = Stopwatch(self.federation.device.type)
        try:
            trained, extra = self.train(
                self.federation.spec.load(start), examples, self.training_generator(inputs), past
            )
            kept = self._kept(examples, start, trained, past)
        except DivergedClientError as error:
            raise DivergedClientError(f"{self.owner}: {error}") from error
        timings = watch.spent().timings()
        training = {"num_examples": len(examples), "epoch_losses": trained.epoch_losses, **extra}
        tensors = {TENSORS: trained.parameters, **kept}
        return Content(tensors=tensors, documents={"training.json": training}, timings=timings)

    def private(self) -> dict[str, Any]:
        """What the key has in addition; nothing without differential privacy."""
        return {}

    def training_generator(self, inputs: TrainingInputs[Artifact]) -> torch.Generator:
        """Build the generator of the training, on the CPU."""
        return self.generator(Stream.CLIENT)

    def train(
        self, network: nn.Module, examples: Examples, generator: torch.Generator, past: Past
    ) -> tuple[Trained, dict[str, Any]]:
        """Train a network in place.

        Args:
            network: holds the weights that the client starts from.
            generator: draws the order of the examples, and all else that the training leaves to chance.
            past: what the client kept of earlier rounds.

        Returns:
            The trained weights, and what else the document of the training records.
        """
        settings, dataset = self.federation.train, self.federation.dataset
        made = self.federation.objective.objective.views
        losses, views = self.losses(network, examples, past), None if made is None else partial(made, dataset)
        trained = train(
            network, examples, settings, generator=generator, losses=losses, augmented=dataset.augment, views=views
        )
        return trained, {}

    def losses(self, network: nn.Module, examples: Examples, past: Past) -> Losses:
        """Make the loss of each example of a batch, which the client minimises.

        Args:
            network: holds the weights that the client starts from.
            past: what the client kept of earlier rounds.
        """
        return self.federation.objective.losses(network, examples.labels, self.federation.dataset.classes, past)

    def _kept(self, examples: Examples, start: Parameters, trained: Trained, past: Past) -> Files:
        """Make what the objective keeps for the next round; most keep nothing."""
        if self.federation.objective.objective.exchange is None:
            return {}
        settings, federation = self.federation.train, self.federation
        training = LocalTraining(
            start=start,
            trained={name: tensor.to(federation.device) for name, tensor in trained.parameters.items()},
            steps=count_steps(settings, len(examples)),
            learning_rate=settings.learning_rate,
            loss_of=lambda weights: mean_loss(federation.spec.load(weights).eval(), examples),
        )
        return self.memory.after_training(training, past)


@dataclass(frozen=True)
class TrainTogether(TrainClient):
    """Train one client together with others.

    How numbers round may depend on the other clients of the group. So the group is part of the result's key, and the
    whole group trains even where some of its results exist.
    """

    indivisible: ClassVar[bool] = True

    members: tuple[int, ...]

    @property
    def chosen(self) -> dict[str, Any]:
        """See `TrainClient.chosen`."""
        return {**super().chosen, "members": list(self.members)}

    def compute(self, inputs: TrainingInputs[Artifact]) -> Content:
        """See `TrainClient.compute`."""
        (content,) = self.compute_together([self], [inputs])
        if isinstance(content, DivergedClientError):
            raise content
        return content

    @classmethod
    def compute_together(
        cls, jobs: Sequence["TrainTogether"], inputs: Sequence[TrainingInputs[Artifact]]
    ) -> list[Content | DivergedClientError]:
        """See `Job.compute_together`; a client's cost is its share of the group's, by its number of steps."""
        first, read = jobs[0], inputs[0]
        federation, start = first.federation, load_start(read.start, first.federation.device)
        group = [replace(first, client=client) for client in first.members]
        # Objectives that read a network are refused, so one skeleton serves to make all losses.
        skeleton = federation.spec.skeleton()
        held = [examples_of(federation, read, client) for client in first.members]
        if first.federation.objective.objective.reads:
            losses = [one.losses(skeleton, examples, NO_PAST) for one, examples in zip(group, held, strict=True)]
        else:
            losses = [first.losses(skeleton, held[0], NO_PAST)] * len(group)
        members = [
            Member(start, examples, one.training_generator(read), own)
            for one, examples, own in zip(group, held, losses, strict=True)
        ]
        watch = Stopwatch(federation.device.type)
        trained = train_together(federation.spec, members, federation.train)
        spent = watch.spent()
        steps = [count_steps(federation.train, len(one.examples)) for one in members]
        contents: dict[int, Content | DivergedClientError] = {}
        for job, member, found, count in zip(group, members, trained, steps, strict=True):
            if isinstance(found, Trained):
                training = {"num_examples": len(member.examples), "epoch_losses": found.epoch_losses}
                contents[job.client] = Content(
                    tensors={TENSORS: found.parameters},
                    documents={"training.json": training},
                    timings=spent.share(count / sum(steps)).timings(),
                )
            else:
                contents[job.client] = DivergedClientError(f"{job.owner}: {found}")
        return [contents[job.client] for job in jobs]


def group_of(clients: Sequence[int], client: int, size: int) -> tuple[int, ...]:
    """List the clients of a client's group.

    Args:
        clients: of the round, ascending.
        size: of a group; the last has what is left.
    """
    first = bisect_left(clients, client) // size * size
    return tuple(clients[first : first + size])


def group_size(federation: Federation) -> int | None:
    """How many clients of a federation train in one call a step; None where clients train one at a time.

    The size belongs to a result's key, so it must not depend on the number of workers. Groups are therefore chosen only
    where there are enough clients for the workers of most machines.
    """
    chosen = federation.settings.train.together
    if chosen != "auto":
        return chosen
    many, small = len(federation.cohort(1)) >= _MANY_CLIENTS, federation.train.batch_size <= _SMALL_BATCH
    if not (many and small) or sum(shape.numel() for shape in federation.spec.shapes().values()) > _FEW_WEIGHTS:
        return None
    if _obstacle(federation) is not None:
        return None
    return _ON_GPU if federation.device.type == "cuda" else _ON_PROCESSOR


def require_together(settings: FederationSettings, federations: Iterable[Federation]) -> None:
    """Check that clients can train together, where the settings say how many.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    if settings.train.together in ("auto", None):
        return
    for federation in federations:
        if (obstacle := _obstacle(federation)) is not None:
            raise InputError(f"train.together={settings.train.together}{obstacle}")


def _obstacle(federation: Federation) -> str | None:
    """Why the clients of a federation can't train together, as a message goes on; None if they can."""
    settings, label = federation.settings, federation.setting.objective
    if settings.privacy is not None:
        return " with privacy: its gradients are clipped client by client; allowed: null"
    if (initialisation := settings.model.initialisation) != "same":
        return f" with model.initialisation={initialisation!r}; allowed: null, or initialisation: same"
    if settings.model.lora.ranks is not None:
        return " with model.lora.ranks, so that clients start from different weights; allowed: null"
    objective = federation.objective.objective
    if read := {*objective.reads, *([] if objective.exchange is None else [Knowledge.PAST])} - _KNOWABLE:
        return f" with train.objective={label!r}, which reads {min(read)}; allowed: null"
    if federation.dataset.augment:
        return (
            f" with data.dataset={federation.dataset.name}, whose images are cropped and mirrored at random; "
            "allowed: null, or data.augment: never"
        )
    family: Callable[[ModelSpec], nn.Module] = models.get(federation.spec.name)
    if (unsupported := _unsupported(family, federation.spec)) is not None:
        return f": {unsupported}; or null"
    return None


@cache
def _unsupported(family: Callable[[ModelSpec], nn.Module], spec: ModelSpec) -> str | None:
    """Why a network can't be stacked, tried once for each family and network; None if it can."""
    try:
        require_stackable(spec)
    except UnsupportedLayerError as error:
        return str(error)
    return None
