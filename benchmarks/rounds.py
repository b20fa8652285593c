"""What a further round of FedAvg takes by the command, against the same trainings, averages and tests as plain calls.

    python -m benchmarks.rounds [--epochs 10] [--turns 3]

20 clients of 100 digits each train in every round; two threads train, with one torch thread each, on both sides. The
command is run with a few rounds and with many, and the difference of the clock is divided by that of the rounds, so
that its start, its page and its records do not count. A run before these makes Prefect's database. Both sides take
turns, since the speed of a machine varies.
"""

import argparse
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import yaml

from benchmarks.held import clients_data
from benchmarks.trees import HERE, Spent, Tree
from fedfisher_core.client.training import train
from fedfisher_core.client.upload import Upload
from fedfisher_core.client.weights import Weights
from fedfisher_core.data.tensors import Examples
from fedfisher_core.evaluation.predictions import accuracy
from fedfisher_core.methods.averaging import mean_parameters
from fedfisher_core.models.spec import Parameters
from fedfisher_core.seeds import Stream, torch_generator

CLIENTS, IMAGES, WORKERS = 20, 100, 2
FEW, MANY = 2, 12
LIMIT = 1.1


def settings_of(model: str, epochs: int, rounds: int) -> dict[str, Any]:
    """Write the settings of one federation.

    Args:
        model: the network's family.
        epochs: of a client, in each round.
        rounds: how many.

    Returns:
        The settings of a benchmark.
    """
    return {
        "name": "rounds",
        "seeds": 0,
        "data": {"examples": CLIENTS * IMAGES},
        "partition": {"scheme": "iid", "clients": CLIENTS},
        "model": {"name": model},
        "train": {"epochs": epochs, "batch_size": 16},
        "rounds": {"count": rounds},
        "methods": {"fedavg": {}},
        "run": {"device": "cpu", "runner": "threads", "workers": WORKERS},
    }


def run_command(tree: Tree, folder: Path, settings: dict[str, Any]) -> Spent:
    """Run the command once.

    Args:
        tree: runs it.
        folder: where; made.
        settings: of the benchmark.

    Returns:
        What it took.
    """
    folder.mkdir()
    (folder / "params.yaml").write_text(yaml.safe_dump(settings))
    return tree.fedfisher(folder, "run")


def command_round(tree: Tree, folder: Path, model: str, epochs: int) -> Spent:
    """Time one further round of the command.

    Args:
        tree: runs it.
        folder: where its runs go.
        model: the network's family.
        epochs: of a client, in each round.

    Returns:
        What it took, Prefect's server with it.
    """
    few, many = (
        run_command(tree, folder / f"{model}-{rounds}", settings_of(model, epochs, rounds)) for rounds in (FEW, MANY)
    )
    return Spent((many.wall - few.wall) / (MANY - FEW), (many.processor - few.processor) / (MANY - FEW))


def plain_round(folder: Path, model: str, epochs: int) -> Spent:
    """Time one round as plain calls.

    Args:
        folder: where the split of the data goes.
        model: the network's family.
        epochs: of a client, in each round.

    Returns:
        What it took.
    """
    data = clients_data(settings_of(model, epochs, 1), folder)
    place, held = data.place, data.clients
    weights = place.spec.initialise(torch_generator(0, Stream.INITIALISATION))

    def trained(client: int, examples: Examples, start: Parameters, number: int) -> Parameters:
        source = torch_generator(0, Stream.CLIENT, client + 1, turn=number)
        return train(place.spec.load(start), examples, place.settings.train, generator=source).parameters

    torch.set_num_threads(1)
    with ThreadPoolExecutor(WORKERS) as pool:
        begun, before = time.perf_counter(), time.process_time()
        for number in range(1, MANY + 1):
            jobs = [pool.submit(trained, client, own, weights, number) for client, own in enumerate(held)]
            uploads = [Upload(len(own), {Weights: Weights(job.result())}) for job, own in zip(jobs, held, strict=True)]
            weights = mean_parameters(uploads)
            accuracy(place.spec.load(weights).eval(), data.test)
        return Spent((time.perf_counter() - begun) / MANY, (time.process_time() - before) / MANY)


def main() -> None:
    """Print the ratio for each small network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10, help="of a client, in each round (10)")
    parser.add_argument("--turns", type=int, default=3, help="of both sides (3)")
    options = parser.parse_args()
    print(f"{CLIENTS} clients of {IMAGES} digits, {options.epochs} epochs of batches of 16, seconds of one round")
    with tempfile.TemporaryDirectory() as name:
        tree = Tree(root=HERE, home=Path(name) / "prefect", data=HERE / "data")
        run_command(tree, Path(name) / "first", settings_of("mlp", 1, 1))
        for model in ("mlp", "lenet"):
            ours, plain = [], []
            for turn in range(options.turns):
                folder = Path(name) / f"{model}-{turn}"
                folder.mkdir()
                ours.append(command_round(tree, folder, model, options.epochs))
                plain.append(plain_round(folder / "store", model, options.epochs))
            ratios = [one.wall / other.wall for one, other in zip(ours, plain, strict=True)]
            processor = [one.processor / other.processor for one, other in zip(ours, plain, strict=True)]
            ratio = statistics.median(ratios)
            print(
                f"{'met   ' if ratio <= LIMIT else 'MISSED'}  {model:6} command "
                f"{statistics.median(one.wall for one in ours):.2f}, plain calls "
                f"{statistics.median(one.wall for one in plain):.2f}, median ratio {ratio:.2f} (<= {LIMIT}), "
                f"from {min(ratios):.2f} to {max(ratios):.2f}; of processor time {statistics.median(processor):.2f}"
            )


if __name__ == "__main__":
    main()
