"""Jobs that one task computes, and those that are computed along."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedfisher_core.jobs import Job, inputs_of
from fedfisher_core.store import Artifact, Step, Store

log = logging.getLogger("fedfisher")


@dataclass(frozen=True)
class Follower:
    """A short job that is computed along with the last of what it needs.

    Args:
        job: it needs some job of a batch.
        there: by name, what it needs beside the batch.
    """

    job: Job[Any]
    there: Mapping[str, Artifact]


@dataclass(frozen=True)
class Batch:
    """Jobs that one task computes together.

    Args:
        jobs: of one class.
        inputs: of each.
        steps: what names the result of each.
        followers: what needs nothing beyond these jobs that is not there yet.
    """

    jobs: tuple[Job[Any], ...]
    inputs: tuple[Any, ...]
    steps: tuple[Step, ...]
    followers: tuple[Follower, ...] = ()

    @property
    def name(self) -> str:
        """What the task is called."""
        return self.jobs[0].batch

    @property
    def size(self) -> float:
        """How long it takes, as its jobs guess."""
        return sum(job.size(own) for job, own in zip(self.jobs, self.inputs, strict=True))


def compute(batch: Batch, store: Store) -> list[Artifact]:
    """Compute and store what a batch makes.

    Args:
        batch: from `Walk.take`.
        store: keeps the results.

    Returns:
        One artifact a job; those of followers are only stored.
    """
    contents = type(batch.jobs[0]).compute_together(batch.jobs, batch.inputs)
    artifacts = [store.write(step, content) for step, content in zip(batch.steps, contents, strict=True)]
    made = dict(zip((job.name for job in batch.jobs), artifacts, strict=True))
    for follower in batch.followers:
        _follow(follower, made, store)
    return artifacts


def _follow(follower: Follower, made: Mapping[str, Artifact], store: Store) -> None:
    """Compute a short job that a batch has set free; the walk finds its result in the store."""
    inputs = inputs_of(follower.job.needs, {**follower.there, **made})
    try:
        step = follower.job.step(inputs)
        if store.find(step) is None:
            store.write(step, follower.job.compute(inputs))
    except Exception as error:  # noqa: BLE001 - the walk hands it out by itself, and that task says what is wrong.
        log.debug("%s: %s", follower.job.name, error)
