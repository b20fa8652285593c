"""Computing and storing the jobs of a plan, and deleting results of earlier rounds."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedfisher_core.engine.errors import DivergedClientError, InputError
from fedfisher_core.engine.job import Job, artifacts_in, map_roles
from fedfisher_core.engine.plan import Agenda, Outcome, agenda_of, groups_of
from fedfisher_core.engine.store import Artifact, Content, Store, names_of, read_document


class Transients:
    """Counts which jobs still need results of earlier rounds, and deletes results that no job needs.

    The store is asked only for what is missing, so no later run needs a deleted result.
    """

    def __init__(self, agenda: Agenda, store: Store, run: Path) -> None:
        self._store, self._run = store, run
        staying = {job.key for job in agenda.graph.values() if job.transient is None}
        self._rounds = {
            job.key: (job.kind, job.transient)
            for job in agenda.graph.values()
            if job.transient is not None and job.key not in staying
        }
        # How many unfinished jobs need each result; the job that makes it counts as well.
        self._needed = dict.fromkeys(self._rounds, 0)
        self._undone = {job.key: self._counted(job) for job in agenda.missing}
        for keys in self._undone.values():
            for key in keys:
                self._needed[key] += 1
        self._free = [key for key, count in self._needed.items() if count == 0]
        self.deleted, self.bytes, self.rounds, self.left = 0, 0, set[int](), 0
        self._why_left = ""

    def _counted(self, job: Job[Any]) -> set[str]:
        return {key for key in (job.key, *(one.key for one in job.roles.values())) if key in self._rounds}

    def done(self, jobs: Iterable[Job[Any]]) -> None:
        """Note that jobs have their results. All that a failed job needs stays for the next run."""
        for job in jobs:
            for key in self._undone.pop(job.key, ()):
                self._needed[key] -= 1
                if self._needed[key] == 0:
                    self._free.append(key)

    @property
    def there(self) -> bool:
        """Whether the store has results that no job needs."""
        return any(self._store.has(self._rounds[key][0], key) for key in self._free)

    def delete(self) -> None:
        """Delete what no job needs. What can't be deleted now stays, and the work goes on."""
        free = [key for key in self._free if self._store.has(self._rounds[key][0], key)]
        if not free:
            return
        self.left, self._why_left = len(free), "another run uses the store"
        try:
            with self._store.only_user(self._run) as only:
                if not only:
                    return
                for key in free:
                    kind, number = self._rounds[key]
                    self.bytes += self._store.delete(kind, key)
                    self.deleted += 1
                    self.left -= 1
                    self.rounds.add(number or 0)
        except InputError as error:
            self._why_left = str(error)
            return
        self._free = []

    def __str__(self) -> str:
        """Say what was deleted and what was left; empty where there was nothing."""
        said = []
        if self.deleted:
            rounds = f"{min(self.rounds)} to {max(self.rounds)}"
            said.append(f"deleted {self.deleted} results of rounds {rounds}, {self.bytes:,} bytes")
        if self.left:
            said.append(f"left {self.left}: {self._why_left}")
        return "; ".join(said)


JOB_SECONDS = "job_seconds"
"""The timing of all that a job computed; where jobs are computed together, of its share."""

DIVERGED = "diverged.json"
"""The only document of a client that diverged."""


def divergence(artifacts: Iterable[Artifact]) -> DivergedClientError | None:
    """Return the error of the first client that diverged; None where all artifacts are of finite results."""
    for artifact in artifacts:
        if names_of(artifact) == (DIVERGED,):
            return DivergedClientError(read_document(artifact, DIVERGED)["reason"])
    return None


def inputs_for(job: Job[Any], store: Store) -> Any:
    """Look up the inputs of a job; None where any is missing."""
    found = {one.key: store.refer(one.kind, one.key) for one in job.roles.values()}
    return None if None in found.values() else map_roles(job.needs, lambda one: found[one.key])


def perform(jobs: Sequence[Job[Any]], store: Store) -> dict[str, Exception]:
    """Compute and store the jobs of one class and title that the store lacks, and return errors by name of the job.

    Another run on the same store, or a task that was stopped, may have stored some. A job whose inputs are missing is
    skipped: the jobs that should have made them give the reason.
    """
    failed: dict[str, Exception] = {}
    ready: list[tuple[Job[Any], Any]] = []
    for job in jobs:
        try:
            if store.find(job.recipe) is None and (inputs := inputs_for(job, store)) is not None:
                store.require_room()
                # A client that diverged has no statistics and no upload.
                if job.may_diverge and (error := divergence(artifacts_in(inputs))) is not None:
                    _keep(job, error, store)
                else:
                    ready.append((job, inputs))
        except Exception as error:  # noqa: BLE001 - the other jobs go on.
            failed[job.name] = error
    if len(ready) > 1 and type(ready[0][0]).compute_together.__func__ is not Job.compute_together.__func__:  # type: ignore[attr-defined]
        ready = list(_together(ready, store, failed))
    for job, inputs in ready:
        try:
            begun = time.perf_counter()
            (content,) = job.compute_together([job], [inputs])
            _keep(job, _timed(content, time.perf_counter() - begun), store)
        except DivergedClientError as error:
            _keep_or_fail(job, error, store, failed)
        except Exception as error:  # noqa: BLE001 - the other jobs go on.
            failed[job.name] = error
    return failed


def _together(
    ready: Sequence[tuple[Job[Any], Any]], store: Store, failed: dict[str, Exception]
) -> Iterator[tuple[Job[Any], Any]]:
    """Compute jobs in one call; if the call fails, yield those to try alone."""
    jobs, inputs = zip(*ready, strict=True)
    try:
        begun = time.perf_counter()
        contents = type(jobs[0]).compute_together(jobs, inputs)
        share = (time.perf_counter() - begun) / len(jobs)
    except Exception as error:  # noqa: BLE001 - each is tried alone, and its own error counts.
        if jobs[0].indivisible:
            failed |= dict.fromkeys((job.name for job in jobs), error)
        else:
            yield from ready
        return
    for job, content in zip(jobs, contents, strict=True):
        _keep_or_fail(job, _timed(content, share), store, failed)


def _timed(content: Content | DivergedClientError, seconds: float) -> Content | DivergedClientError:
    if isinstance(content, DivergedClientError):
        return content
    return replace(content, timings={**content.timings, JOB_SECONDS: seconds})


def _keep_or_fail(
    job: Job[Any], content: Content | DivergedClientError, store: Store, failed: dict[str, Exception]
) -> None:
    try:
        _keep(job, content, store)
    except Exception as error:  # noqa: BLE001 - the other jobs go on.
        failed[job.name] = error


def _keep(job: Job[Any], content: Content | DivergedClientError, store: Store) -> None:
    if isinstance(content, DivergedClientError):
        if not job.may_diverge:
            raise content
        content = Content(documents={DIVERGED: {"reason": str(content)}})
    elif job.reads_sources and replace(job).key != job.key:
        raise InputError(f"{job.name}: its files were changed while they were read; start again")
    store.write(job.recipe, content)


def execute(jobs: Iterable[Job[Any]], store: Store) -> Outcome:
    """Compute a whole plan in this thread, and raise the first error of a job."""
    with store.used_by_run("work without orchestration") as run:
        agenda = agenda_of(jobs, store)
        transients = Transients(agenda, store, run)
        transients.delete()
        for group in groups_of(agenda.missing):
            for error in perform(group, store).values():
                raise error
            transients.done(group)
            transients.delete()
        return agenda.outcome(store, {})
