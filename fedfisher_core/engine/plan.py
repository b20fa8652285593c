"""The plan: jobs in their order, what the store lacks of what results need, and what failed."""

import json
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fedfisher_core.engine.errors import DivergedClientError, InputError, JobError, printable
from fedfisher_core.engine.files import read_regular
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.store import Artifact, Store

_LONGEST = 300
_MOST_BYTES = 2**24


@dataclass(frozen=True)
class Failure:
    """Why a job has no result.

    Args:
        job: name of the job that failed: this one, or one that it needs.
        by_user: whether other settings or other data would mend it.
    """

    job: str
    reason: str
    trace: str
    by_user: bool

    @staticmethod
    def of(job: str, error: Exception) -> "Failure":
        """Write a job's error down as text, without the objects that its traceback keeps in memory."""
        by_user = isinstance(error, InputError | DivergedClientError)
        text = str(error) if by_user or isinstance(error, JobError) else described(error)
        line = printable(" ".join(text.split()))
        reason = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
        trace = error.trace if isinstance(error, JobError) else "".join(traceback.format_exception(error))
        return Failure(job, reason, trace, by_user)


@dataclass(frozen=True)
class FailedJob:
    """A job that failed, for people.

    Args:
        left_out: names of the jobs that need it.
    """

    job: str
    reason: str
    left_out: tuple[str, ...]


_FAILED_JOBS = TypeAdapter(list[FailedJob])


def described(error: Exception) -> str:
    """Put an error's type before its message."""
    return f"{type(error).__name__}: {error}"


def failed_jobs(failed: Mapping[str, Failure]) -> tuple[FailedJob, ...]:
    """List the jobs that failed, in order, from the failures by name of the job that has no result."""
    causes = {failure.job: failure for failure in failed.values()}
    return tuple(
        FailedJob(
            job, cause.reason, tuple(name for name, failure in failed.items() if failure.job == job and name != job)
        )
        for job, cause in causes.items()
    )


def traces_text(failed: Mapping[str, Failure]) -> str:
    """Write each traceback once, under the names of the jobs that raised it."""
    jobs: dict[str, dict[str, str]] = {}
    for failure in failed.values():
        jobs.setdefault(failure.trace, {})[failure.job] = failure.reason
    blocks = ("\n".join([*(f"{job}: {reason}" for job, reason in own.items()), trace]) for trace, own in jobs.items())
    return "\n".join(blocks)


def failed_json(failed: Sequence[FailedJob]) -> bytes:
    """Write failed jobs as a file that `read_failed` reads."""
    return (json.dumps([asdict(one) for one in failed], indent=2) + "\n").encode()


def read_failed(path: Path) -> list[FailedJob]:
    """Read failed jobs from a file by `failed_json`; a missing file means none, another content is an `InputError`."""
    try:
        return _FAILED_JOBS.validate_json(read_regular(path, limit=_MOST_BYTES))
    except FileNotFoundError:
        return []
    except (OSError, ValidationError) as error:
        raise InputError(f"{path} is no list of failed jobs") from error


@dataclass(frozen=True)
class Outcome:
    """What the jobs of a plan have made.

    Args:
        artifacts: by name of the job. The inputs of a result are there unless they failed.
        failed: reasons of jobs that failed and of those that need them, by name.
    """

    artifacts: Mapping[str, Artifact]
    failed: Mapping[str, Failure] = field(default_factory=dict)


def in_order(targets: Iterable[Job[Any]]) -> list[Job[Any]]:
    """Put jobs and all that they need into an order in which each comes after those that it needs; each object once.

    Raises:
        InputError: jobs need each other in a circle.
    """
    jobs: dict[int, Job[Any]] = {}
    sorter: TopologicalSorter[int] = TopologicalSorter()
    todo = list(targets)[::-1]
    while todo:
        job = todo.pop()
        if id(job) not in jobs:
            jobs[id(job)] = job
            needed = job.needed
            sorter.add(id(job), *map(id, needed))
            todo += needed[::-1]
    try:
        return [jobs[one] for one in sorter.static_order()]
    except CycleError as error:
        names = [jobs[one].name for one in error.args[1][1:]]
        raise InputError(f"jobs need each other in a circle: {', '.join(map(repr, names))}") from error


def graph_of(targets: Iterable[Job[Any]]) -> dict[str, Job[Any]]:
    """Return jobs and all that they need by name, each after those that it needs.

    Raises:
        InputError: two different jobs share a name, or jobs need each other in a circle.
    """
    known: dict[str, Job[Any]] = {}
    for job in in_order(targets):
        # In this order, a job's key rests on keys that are computed already.
        if known.setdefault(job.name, job).key != job.key:
            raise InputError(f"two different jobs are called {job.name!r}; allowed: one")
    return known


@dataclass(frozen=True)
class Agenda:
    """What the store has of a plan, and what is to be computed.

    Args:
        graph: all jobs by name, in their order.
        found: artifacts by key, as far as the store was asked.
        missing: jobs to compute, in their order, one for each key.
    """

    graph: Mapping[str, Job[Any]]
    targets: Sequence[str]
    found: Mapping[str, Artifact]
    missing: Sequence[Job[Any]]

    def outcome(self, store: Store, failures: Mapping[str, Failure]) -> Outcome:
        """Gather results and failures when the work is done. A job that needs a failed job fails with its reason."""
        found, failed_keys = dict(self.found), dict[str, Failure]()
        for job in self.missing:
            causes = [failed_keys[one.key] for one in job.roles.values() if one.key in failed_keys]
            if job.name in failures:
                failed_keys[job.key] = failures[job.name]
            elif causes:
                failed_keys[job.key] = causes[0]
            elif (made := store.refer(job.kind, job.key)) is not None:
                found[job.key] = made
            elif job.transient is None:
                failed_keys[job.key] = Failure(job.name, "its task did not run", "", by_user=False)
        return Outcome(
            artifacts={name: found[job.key] for name, job in self.graph.items() if job.key in found},
            failed={name: failed_keys[job.key] for name, job in self.graph.items() if job.key in failed_keys},
        )


def agenda_of(jobs: Iterable[Job[Any]], store: Store) -> Agenda:
    """Ask the store, backwards from the wanted results, for what is missing; errors as for `graph_of`.

    It is not asked for inputs of a result that it has.
    """
    jobs = list(jobs)
    graph = graph_of(jobs)
    wanted = list(dict.fromkeys(job.name for job in jobs))
    found: dict[str, Artifact] = {}
    missing: dict[str, Job[Any]] = {}
    todo = [graph[name] for name in wanted]
    while todo:
        job = todo.pop()
        if job.key in found or job.key in missing:
            continue
        artifact = store.find(job.recipe)
        if artifact is None:
            missing[job.key] = job
            todo += job.needed
        else:
            found[job.key] = artifact
    first = {job.key: job for job in reversed(graph.values())}
    return Agenda(graph, wanted, found, [job for key, job in first.items() if key in missing][::-1])


def groups_of(missing: Sequence[Job[Any]]) -> list[list[Job[Any]]]:
    """Group missing jobs of one title; groups that need none come first, then those that need only these, and so on.

    Raises:
        InputError: groups need each other in a circle.
    """
    groups: dict[tuple[type[Job[Any]], str], list[Job[Any]]] = {}
    group_of_key: dict[str, tuple[type[Job[Any]], str]] = {}
    for job in missing:
        title = (type(job), job.title)
        groups.setdefault(title, []).append(job)
        group_of_key[job.key] = title
    sorter = TopologicalSorter(
        {
            title: {group_of_key[one.key] for job in group for one in job.roles.values() if one.key in group_of_key}
            for title, group in groups.items()
        }
    )
    order: list[list[Job[Any]]] = []
    try:
        sorter.prepare()
    except CycleError as error:
        names = [title for _, title in error.args[1][1:]]
        raise InputError(f"tasks need each other in a circle: {', '.join(map(repr, names))}") from error
    while sorter.is_active():
        ready = sorter.get_ready()
        order += [groups[title] for title in ready]
        sorter.done(*ready)
    return order
