"""The plan: jobs in their order, and what the store lacks of what results need."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.failures import Failure
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.store import Artifact, Store


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
