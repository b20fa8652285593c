"""Training several clients of a federation in one call a step."""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from torch import nn

from fedfisher_core.client.objectives.binding import bind_objective
from fedfisher_core.client.objectives.objective import Knowledge
from fedfisher_core.client.past import NO_PAST
from fedfisher_core.client.together import Member, train_together
from fedfisher_core.client.training import Trained, count_steps
from fedfisher_core.errors import DivergedClientError, InputError, UnsupportedLayerError
from fedfisher_core.federation.inputs import TrainingInputs
from fedfisher_core.federation.partition import examples_of
from fedfisher_core.federation.place import Place
from fedfisher_core.federation.start import load_start
from fedfisher_core.federation.training import TrainClient
from fedfisher_core.federation.uploads import TENSORS
from fedfisher_core.models.spec import ModelSpec, models
from fedfisher_core.models.stacked import require_stackable
from fedfisher_core.settings import FederationSettings
from fedfisher_core.store import Artifact, Content, Step

_KNOWABLE = frozenset({Knowledge.LABEL_COUNTS})
"""What an objective may read of a client whose weights and features are beside those of others."""

_MANY_CLIENTS, _SMALL_BATCH, _FEW_WEIGHTS = 100, 16, 500_000
"""From how many clients of a round on, and up to which batches and networks, clients train together of themselves.

With 44,190 and 414,600 weights, each case that was timed was faster: 100 clients of 64 images at batches of 8 and 16 on
two processors, and 20 at batches of 16 on a GPU.
"""
_ON_PROCESSOR, _ON_GPU = 5, 10
"""Sizes of groups, of those that were timed."""


@dataclass(frozen=True)
class TrainTogether(TrainClient):
    """Train one client beside others.

    How numbers round may depend on who stands beside it. So the group is part of what the result is named by, and is
    trained as a whole also where some of its clients are there.

    Args:
        members: the clients that train together, this one among them.
    """

    members: tuple[int, ...]

    @property
    def whole(self) -> bool:
        """See `Job.whole`."""
        return True

    def step(self, inputs: TrainingInputs[Artifact]) -> Step:
        """See `Job.step`; the partition says what the others hold."""
        step = super().step(inputs)
        return replace(
            step,
            settings={**step.settings, "members": list(self.members)},
            inputs={**step.inputs, "partition": inputs.partition.digest},
        )

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
        """See `Job.compute_together`; a client's seconds are its part of the group's, by the number of its steps."""
        first, read = jobs[0], inputs[0]
        place, start = first.place, load_start(read.start, first.place.device)
        group = [replace(first, client=client) for client in first.members]
        # Objectives that read a network are refused, so that one serves to make all losses.
        skeleton = place.spec.skeleton()
        held = [examples_of(place, read, client) for client in first.members]
        if first.objective.objective.reads:
            losses = [one.losses(skeleton, examples, NO_PAST) for one, examples in zip(group, held, strict=True)]
        else:
            losses = [first.losses(skeleton, held[0], NO_PAST)] * len(group)
        members = [
            Member(start, examples, one.chance(read), own)
            for one, examples, own in zip(group, held, losses, strict=True)
        ]
        begun = time.perf_counter()
        trained = train_together(place.spec, members, place.train)
        seconds = time.perf_counter() - begun
        steps = [count_steps(place.train, len(one.examples)) for one in members]
        contents: dict[int, Content | DivergedClientError] = {}
        for job, member, found, count in zip(group, members, trained, steps, strict=True):
            if isinstance(found, Trained):
                training = {"num_examples": len(member.examples), "epoch_losses": found.epoch_losses}
                contents[job.client] = Content(
                    tensors={TENSORS: found.parameters},
                    documents={"training.json": training},
                    timings={"seconds": seconds * count / sum(steps)},
                )
            else:
                contents[job.client] = DivergedClientError(f"{job.whose}: {found}")
        return [contents[job.client] for job in jobs]


def group_of(clients: Sequence[int], client: int, size: int) -> tuple[int, ...]:
    """Say with whom a client trains.

    Args:
        clients: of the round, ascending.
        client: one of them.
        size: of a group; the last has what is left.

    Returns:
        The clients of its group.
    """
    first = bisect_left(clients, client) // size * size
    return tuple(clients[first : first + size])


def group_size(place: Place) -> int | None:
    """Say how many clients of a federation train in one call a step.

    It is the same on any number of workers, since the group belongs to what a result is named by: so groups are only
    chosen where clients are many enough for the workers of most machines.

    Args:
        place: the federation.

    Returns:
        The size of a group; None where clients train one at a time.
    """
    chosen = place.settings.train.together
    if chosen != "auto":
        return chosen
    many, small = len(place.cohort(1)) >= _MANY_CLIENTS, place.train.batch_size <= _SMALL_BATCH
    if not (many and small) or sum(shape.numel() for shape in place.spec.shapes().values()) > _FEW_WEIGHTS:
        return None
    if _obstacle(place) is not None:
        return None
    return _ON_GPU if place.device.type == "cuda" else _ON_PROCESSOR


def require_together(settings: FederationSettings, places: Iterable[Place]) -> None:
    """Check that clients can train together, where the settings say how many.

    Args:
        settings: of the federations.
        places: the federations.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    if settings.train.together in ("auto", None):
        return
    for place in places:
        if (obstacle := _obstacle(place)) is not None:
            raise InputError(f"train.together={settings.train.together}{obstacle}")


def _obstacle(place: Place) -> str | None:
    """Say why the clients of a federation can't train together, as a message goes on; None if they can."""
    settings, label = place.settings, place.cell.objective
    if settings.privacy is not None:
        return " with privacy: its gradients are clipped client by client; allowed: null"
    if (initialisation := settings.model.initialisation) != "same":
        return f" with model.initialisation={initialisation!r}; allowed: null, or initialisation: same"
    objective = bind_objective(label, settings.train.objective).objective
    if read := {*objective.reads, *([] if objective.exchange is None else [Knowledge.PAST])} - _KNOWABLE:
        return f" with train.objective={label!r}, which reads {min(read)}; allowed: null"
    if place.dataset.augment:
        return (
            f" with data.dataset={place.dataset.name}, whose images are cropped and mirrored at random; allowed: null, "
            "or data.augment: never"
        )
    family: Callable[[ModelSpec], nn.Module] = models.get(place.spec.name)
    if (unsupported := _unsupported(family, place.spec)) is not None:
        return f": {unsupported}; or null"
    return None


@cache
def _unsupported(family: Callable[[ModelSpec], nn.Module], spec: ModelSpec) -> str | None:
    """Say once for each family and network, which are tried for it, why they can't be stacked; None if they can."""
    try:
        require_stackable(spec)
    except UnsupportedLayerError as error:
        return str(error)
    return None
