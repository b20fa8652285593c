"""Clients of a federation, trained in this thread; those that the store holds are taken from it."""

from collections.abc import Mapping
from dataclasses import dataclass

from fedfisher_core.client.statistic import Statistic
from fedfisher_core.federation.federation import Federations
from fedfisher_core.federation.inputs import StartInputs
from fedfisher_core.federation.place import Place
from fedfisher_core.federation.uploads import read_statistics
from fedfisher_core.jobs import graph_of, inputs_of, names_in, needed_for
from fedfisher_core.store import Artifact, open_store
from fedfisher_core.walk import walk_here


@dataclass(frozen=True)
class Clients:
    """One federation after the work of its clients.

    Args:
        inputs: what the server has before the first upload.
        statistics: what each client has ready to send, its weights among it.
    """

    inputs: StartInputs[Artifact]
    statistics: tuple[Mapping[type[Statistic], Statistic], ...]


def train_clients(federations: Federations, place: Place) -> Clients:
    """Train the clients of a federation, and compute what their methods declare.

    Args:
        federations: of some settings.
        place: one of them.

    Returns:
        The clients.
    """
    names = {}
    for client in federations.clients(place):
        jobs = federations.statistics_jobs(place, client)
        trained = federations.training(place, client).name
        names[client] = {
            one.statistic.name: jobs[one.statistic].name if one.statistic in jobs else trained
            for one in federations.statistics(place, client)
        }
    needs = StartInputs(federations.data(place).name, federations.partition(place).name, federations.start(place).name)
    targets = [*names_in(needs), *(name for each in names.values() for name in each.values())]
    graph = {job.name: job for job in needed_for(graph_of(federations.jobs()), targets)}
    found = walk_here(graph, open_store(federations.settings.run.store)).artifacts
    return Clients(
        inputs=inputs_of(needs, found),
        statistics=tuple(
            read_statistics(
                federations.statistics(place, client), place.spec, {key: found[name] for key, name in each.items()}
            )
            for client, each in names.items()
        ),
    )
