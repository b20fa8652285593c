"""Training several clients of a federation in one call a step."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

from torch import nn

from fedfisher_core.client.objectives.configured import configure_objective
from fedfisher_core.client.objectives.objective import Knowledge
from fedfisher_core.client.past import NO_PAST
from fedfisher_core.client.together import Member, train_together
from fedfisher_core.client.training import Trained, count_steps
from fedfisher_core.engine.costs import Stopwatch
from fedfisher_core.engine.errors import DivergedClientError, InputError, UnsupportedLayerError
from fedfisher_core.engine.store import Artifact, Content
from fedfisher_core.federation.federation import Federation
from fedfisher_core.federation.inputs import TrainingInputs
from fedfisher_core.federation.partition import examples_of
from fedfisher_core.federation.start import load_start
from fedfisher_core.federation.training import TrainClient
from fedfisher_core.federation.uploads import TENSORS
from fedfisher_core.models.spec import ModelSpec, models
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
class TrainTogether(TrainClient):
    """Train one client together with others.

    How numbers round may depend on the other clients of the group. So the group is part of the result's key, and the
    whole group trains even where some of its results exist.

    Args:
        members: the clients that train together, this one included.
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
        if first.objective.objective.reads:
            losses = [one.losses(skeleton, examples, NO_PAST) for one, examples in zip(group, held, strict=True)]
        else:
            losses = [first.losses(skeleton, held[0], NO_PAST)] * len(group)
        members = [
            Member(start, examples, one.chance(read), own)
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
        client: one of them.
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
    objective = configure_objective(label, settings.train.objective).objective
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
