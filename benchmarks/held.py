"""What the clients of one federation hold, for calls without orchestration."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfisher_core.configuration import validate
from fedfisher_core.data.tensors import Examples, select
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.inputs import PartitionInputs
from fedfisher_core.federation.partition import examples_of
from fedfisher_core.federation.place import Place
from fedfisher_core.jobs import graph_of, needed_for
from fedfisher_core.store import open_store
from fedfisher_core.walk import walk_here


@dataclass(frozen=True)
class ClientsData:
    """The examples of a federation.

    Args:
        place: the federation.
        clients: what each holds.
        test: all test examples.
    """

    place: Place
    clients: list[Examples]
    test: Examples


def clients_data(content: Mapping[str, Any], folder: Path) -> ClientsData:
    """Decode and split the data of the only federation of some settings.

    Args:
        content: settings of a benchmark.
        folder: the store of the split.

    Returns:
        The examples.
    """
    run = {**content["run"], "store": str(folder)}
    federations = check_federations(validate(BenchmarkSettings, {**content, "run": run}))
    (place,) = federations.places
    names = [federations.data(place).name, federations.partition(place).name]
    graph = {job.name: job for job in needed_for(graph_of(federations.jobs()), names)}
    found = walk_here(graph, open_store(folder)).artifacts
    inputs = PartitionInputs(*(found[name] for name in names))
    count = place.cell.clients
    dataset = load_data(inputs.data)
    held = [examples_of(place, inputs, client) for client in range(count)]
    return ClientsData(place, held, select(dataset.test, dataset.spec))
