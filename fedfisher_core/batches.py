"""Jobs that one task computes, and those that are computed along."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedfisher_core.errors import DivergedClientError, InputError, SomeDivergedError
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
    """Compute and store what a batch makes, but for what was stored meanwhile.

    That may be the work of another run on the same store, or of a task that was stopped before it could tell of it.

    Args:
        batch: from `Walk.take`.
        store: keeps the results.

    Returns:
        One artifact a job; then those of the followers that could be computed.

    Raises:
        InputError: files that a job reads are others than when its result was named, or the store's disk is full.
        DivergedClientError: the client of the only job diverged.
        SomeDivergedError: the clients of some of several jobs diverged; the results of the others are kept.
    """
    found = {step.key: artifact for step in batch.steps if (artifact := store.find(step)) and not artifact.shed}
    made: dict[str, Artifact] = {}
    left = [entry for entry in zip(batch.jobs, batch.inputs, batch.steps, strict=True) if entry[-1].key not in found]
    if left:
        store.require_room()
        jobs, inputs, steps = zip(*left, strict=True)
        contents = type(jobs[0]).compute_together(jobs, inputs)
        for job, own, step in left:
            if job.reads_sources and job.step(own).key != step.key:
                raise InputError(f"{job.name}: its files were changed while they were read; start again")
        diverged = {}
        for job, step, content in zip(jobs, steps, contents, strict=True):
            if isinstance(content, DivergedClientError):
                diverged[job.name] = content
            else:
                found[step.key] = store.write(step, content)
                # What follows need not read it back.
                made[job.name] = replace(found[step.key], made=content)
        _require_none(batch, diverged)
    artifacts = [found[step.key] for step in batch.steps]
    made = dict(zip((job.name for job in batch.jobs), artifacts, strict=True)) | made
    followed = [_followed(follower, made, store) for follower in batch.followers]
    return artifacts + [artifact for artifact in followed if artifact is not None]


def _require_none(batch: Batch, diverged: Mapping[str, DivergedClientError]) -> None:
    """Check that no client diverged."""
    if diverged and len(batch.jobs) == 1:
        raise next(iter(diverged.values()))
    if diverged:
        raise SomeDivergedError({name: str(error) for name, error in diverged.items()})


def _followed(follower: Follower, made: Mapping[str, Artifact], store: Store) -> Artifact | None:
    """Find or compute what a batch has set free; None where that fails."""
    inputs = inputs_of(follower.job.needs, {**follower.there, **made})
    try:
        step = follower.job.step(inputs)
        found = store.find(step)
        return store.write(step, follower.job.compute(inputs)) if found is None else found
    except Exception as error:  # noqa: BLE001 - the walk hands it out by itself, and that task says what is wrong.
        log.debug("%s: %s", follower.job.name, error)
        return None
