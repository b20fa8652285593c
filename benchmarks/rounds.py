"""What a further round of FedAvg takes by the command, against the same trainings, averages and tests as plain calls.

    python -m benchmarks.rounds [--epochs 10] [--batch-size 16] [--turns 3] [--models mlp lenet]

20 clients of 100 digits each train in every round, with one torch thread each, in two threads on both sides and in two
processes on both sides: those of `concurrent.futures`, which hand weights over and keep nothing. What counts is the
time from the end of the second round to that of the last, by when each aggregate was stored, so that starts, the page
and the records do not. A run before these makes Prefect's database. All sides take turns, since the speed of a machine
varies.
"""

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import yaml

from benchmarks.held import ClientsData, clients_data
from benchmarks.trees import HERE, Tree
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.training import train
from fedfisher_core.client.uploads import Upload
from fedfisher_core.engine.malloc import keep_freed_memory
from fedfisher_core.engine.seeds import Stream, torch_generator
from fedfisher_core.methods.shared.averaging import mean_parameters
from fedfisher_core.models.evaluation import accuracy
from fedfisher_core.models.spec import Parameters

CLIENTS, IMAGES, WORKERS = 20, 100, 2
ROUNDS, FIRST = 22, 2
LIMIT = 1.1
MODELS, RUNNERS = ("mlp", "lenet"), ("threads", "processes")

_held: list[ClientsData] = []
"""What clients of plain calls hold, read once a process."""


@dataclass(frozen=True)
class Federation:
    """What is timed.

    Args:
        model: the network's family.
        runner: what clients train in.
        epochs: of a client, in each round.
        batch_size: of its steps.
    """

    model: str
    runner: str
    epochs: int
    batch_size: int

    @property
    def settings(self) -> dict[str, Any]:
        """Those of a benchmark."""
        return {
            "name": "rounds",
            "seeds": 0,
            "data": {"examples": CLIENTS * IMAGES},
            "partition": {"scheme": "iid", "clients": CLIENTS},
            "model": {"name": self.model},
            "train": {"epochs": self.epochs, "batch_size": self.batch_size},
            "rounds": {"count": ROUNDS},
            "methods": {"fedavg": {}},
            "run": {"device": "cpu", "runner": self.runner, "workers": WORKERS},
        }


def by_command(tree: Tree, folder: Path, settings: dict[str, Any]) -> float:
    """Run the command once.

    Args:
        tree: runs it.
        folder: where; made.
        settings: of the benchmark.

    Returns:
        Seconds of one round.
    """
    folder.mkdir()
    (folder / "params.yaml").write_text(yaml.safe_dump(settings))
    tree.fedfisher(folder, "run")
    stored = (folder / "artifacts" / "aggregates").glob("*/manifest.json")
    return seconds_of_one(sorted(path.stat().st_mtime for path in stored))


def by_plain_calls(folder: Path, settings: dict[str, Any]) -> float:
    """Train, average and test as plain calls.

    Args:
        folder: where the split of the data goes; made.
        settings: of the benchmark.

    Returns:
        Seconds of one round.
    """
    folder.mkdir()
    hold(folder, settings)
    (data,) = _held
    ends = []
    weights = data.federation.spec.initialise(torch_generator(0, Stream.INITIALISATION))
    with pool(folder, settings) as workers:
        for number in range(1, ROUNDS + 1):
            jobs = [workers.submit(trained, client, weights, number) for client in range(CLIENTS)]
            sent = [Upload(IMAGES, {Weights: Weights(job.result())}) for job in jobs]
            weights = mean_parameters(sent)
            accuracy(data.federation.spec.load(weights).eval(), data.test)
            ends.append(time.perf_counter())
    return seconds_of_one(ends)


def seconds_of_one(ends: Sequence[float]) -> float:
    """Average what a further round takes.

    Args:
        ends: of all rounds, in their order.
    """
    assert len(ends) == ROUNDS
    return (ends[-1] - ends[FIRST - 1]) / (ROUNDS - FIRST)


def hold(folder: Path, settings: dict[str, Any]) -> None:
    """Read what clients hold.

    Args:
        folder: where the split of the data is, or goes.
        settings: of the benchmark.
    """
    torch.set_num_threads(1)
    # As tasks do, which makes training faster.
    keep_freed_memory()
    _held[:] = [clients_data(settings, folder)]


def pool(folder: Path, settings: dict[str, Any]) -> Executor:
    """Make threads or processes that know what clients hold."""
    if settings["run"]["runner"] == "threads":
        return ThreadPoolExecutor(WORKERS)
    return ProcessPoolExecutor(WORKERS, get_context("spawn"), initializer=hold, initargs=(folder, settings))


def trained(client: int, start: Parameters, number: int) -> Parameters:
    """Train one client.

    Args:
        client: its number.
        start: the weights that it begins with.
        number: of the round, from 1.

    Returns:
        Its weights.
    """
    (data,) = _held
    chance = torch_generator(0, Stream.CLIENT, client + 1, round_number=number)
    network, recipe = data.federation.spec.load(start), data.federation.settings.train
    return train(network, data.clients[client], recipe, generator=chance).parameters


def main() -> None:
    """Print the ratio for each small network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10, help="of a client, in each round (10)")
    parser.add_argument("--batch-size", type=int, default=16, help="of a client's steps (16)")
    parser.add_argument("--turns", type=int, default=3, help="of both sides (3)")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, help="small networks (all)")
    options = parser.parse_args()
    epochs, batch_size = options.epochs, options.batch_size
    print(f"{CLIENTS} clients of {IMAGES} digits, {epochs} epochs of batches of {batch_size}, seconds of one round")
    with tempfile.TemporaryDirectory() as name:
        tree = Tree(root=HERE, home=Path(name) / "prefect", data=HERE / "data")
        by_command(tree, Path(name) / "first", Federation("mlp", "threads", 1, 64).settings)
        for model, runner in itertools.product(options.models, RUNNERS):
            federation = Federation(model, runner, epochs, batch_size)
            ours, plain = [], []
            for round_number in range(options.turns):
                folder = Path(name) / f"{model}-{runner}-{round_number}"
                folder.mkdir()
                ours.append(by_command(tree, folder / "command", federation.settings))
                plain.append(by_plain_calls(folder / "plain", federation.settings))
            ratios = [one / other for one, other in zip(ours, plain, strict=True)]
            ratio = statistics.median(ratios)
            print(
                f"{'met   ' if ratio <= LIMIT else 'MISSED'}  {model:6} {runner:10} command "
                f"{statistics.median(ours):.2f}, plain calls {statistics.median(plain):.2f}, median ratio "
                f"{ratio:.2f} (<= {LIMIT}), from {min(ratios):.2f} to {max(ratios):.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
