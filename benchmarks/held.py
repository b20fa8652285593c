"""What the clients of one federation hold, for calls without orchestration."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfisher_core.data.tensors import Examples, select
from fedfisher_core.engine.performing import execute
from fedfisher_core.engine.store import open_store
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.federation import Federation, PartitionInputs
from fedfisher_core.federation.partition import examples_of
from fedfisher_core.settings.reading import validate


@dataclass(frozen=True)
class ClientsData:
    """The examples of a federation.

    Args:
        federation: the federation.
        clients: what each holds.
        test: all test examples.
    """

    federation: Federation
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
    (federation,) = federations.all
    jobs = [federations.data(federation), federations.partition(federation)]
    found = execute(jobs, open_store(folder)).artifacts
    inputs = PartitionInputs(*(found[job.name] for job in jobs))
    count = federation.setting.clients
    dataset = load_data(inputs.data)
    held = [examples_of(federation, inputs, client) for client in range(count)]
    return ClientsData(federation, held, select(dataset.test, dataset.spec))
