"""Clients of a federation, trained in this thread; those that the store holds are taken from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.engine.job import Job, map_roles
from fedfisher_core.engine.performing import execute
from fedfisher_core.engine.store import Artifact, open_store
from fedfisher_core.federation.federation import Federation, StartInputs
from fedfisher_core.federation.jobs import Federations
from fedfisher_core.federation.uploads import read_statistics


@dataclass(frozen=True)
class Clients:
    """One federation after the work of its clients.

    Args:
        inputs: what the server has before the first upload.
        statistics: what each client has ready to send, its weights among it.
    """

    inputs: StartInputs[Artifact]
    statistics: tuple[Mapping[type[Statistic], Statistic], ...]


def train_clients(federations: Federations, federation: Federation) -> Clients:
    """Train the clients of a federation, and compute what their methods declare.

    Args:
        federations: of some settings.
        federation: one of them.

    Returns:
        The clients.
    """
    made: dict[int, dict[str, Job[Any]]] = {}
    for client in federations.clients(federation):
        jobs, trained = federations.statistics_jobs(federation, client), federations.training(federation, client)
        made[client] = {
            one.statistic.name: jobs.get(one.statistic, trained) for one in federations.statistics(federation, client)
        }
    needs = StartInputs(federations.data(federation), federations.partition(federation), federations.start(federation))
    targets = [needs.data, needs.partition, needs.start, *(job for each in made.values() for job in each.values())]
    outcome = execute(targets, open_store(federations.settings.run.store))
    found = {artifact.key: artifact for artifact in outcome.artifacts.values()}
    return Clients(
        inputs=map_roles(needs, lambda job: found[job.key]),
        statistics=tuple(
            read_statistics(
                federations.statistics(federation, client),
                federation.spec,
                {key: found[job.key] for key, job in each.items()},
            )
            for client, each in made.items()
        ),
    )
