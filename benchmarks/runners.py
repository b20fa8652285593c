"""The same federation by the command on threads and on processes of this machine.

    python -m benchmarks.runners [--repeats 1]

Threads of Python wait for each other between tensor operations, the more the smaller these are; processes do not, but
each loads torch and Prefect first. Twenty clients share the embedded digits and train for few epochs and for many, one
thread of torch each, on as many workers as there are cores; the server averages. The clock is that of the whole
command, and the difference is what further epochs take. Both runners take turns, after a run that makes Prefect's
database.
"""

import argparse
import itertools
import statistics
import tempfile
from pathlib import Path
from typing import Any

import yaml

from benchmarks.trees import HERE, Tree

CLIENTS = 20
MODELS, BATCHES = ("mlp", "lenet"), (16, 64)
FEW, MANY = 4, 40
RUNNERS = "threads", "processes"


def settings_of(model: str, batch_size: int, epochs: int, runner: str) -> dict[str, Any]:
    """Write the settings of one federation.

    Args:
        model: the network's family.
        batch_size: of local training.
        epochs: likewise.
        runner: of the tasks.

    Returns:
        The settings of a benchmark.
    """
    return {
        "name": "runners",
        "seeds": 0,
        "data": {"dataset": "mnist5k"},
        "partition": {"scheme": "iid", "clients": CLIENTS},
        "model": {"name": model},
        "train": {"epochs": epochs, "batch_size": batch_size},
        "methods": {"fedavg": {}},
        "run": {"device": "cpu", "runner": runner},
    }


def seconds(tree: Tree, settings: dict[str, Any]) -> float:
    """Run the command in a folder of its own, where nothing is there yet.

    Args:
        tree: runs it.
        settings: of the benchmark.

    Returns:
        By the clock.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "params.yaml").write_text(yaml.safe_dump(settings))
        return tree.fedfisher(Path(folder), "run").wall


def main() -> None:
    """Print both sides for each network, size of batches and number of epochs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=1, help="timed runs of each side (1)")
    given = parser.parse_args()
    print(f"{CLIENTS} clients, seconds of the command, median of {given.repeats}")
    with tempfile.TemporaryDirectory() as home:
        tree = Tree(root=HERE, home=Path(home), data=HERE / "data")
        seconds(tree, settings_of("mlp", 64, 1, "threads"))
        for model, batch_size in itertools.product(MODELS, BATCHES):
            print(f"{model}, batches of {batch_size}")
            few, many = (timed(tree, model, batch_size, epochs, given.repeats) for epochs in (FEW, MANY))
            show(f"{FEW} epochs", few)
            show(f"{MANY} epochs", many)
            show(f"{MANY - FEW} further ones", tuple(late - early for early, late in zip(few, many, strict=True)))


def timed(tree: Tree, model: str, batch_size: int, epochs: int, repeats: int) -> tuple[float, ...]:
    """Run both in turn.

    Args:
        tree: runs the command.
        model: the network's family.
        batch_size: of local training.
        epochs: likewise.
        repeats: of each.

    Returns:
        Median seconds of each runner.
    """
    taken: dict[str, list[float]] = {runner: [] for runner in RUNNERS}
    for _ in range(repeats):
        for runner, record in taken.items():
            record.append(seconds(tree, settings_of(model, batch_size, epochs, runner)))
    return tuple(map(statistics.median, taken.values()))


def show(what: str, taken: tuple[float, ...]) -> None:
    """Print seconds of both, and how many times as fast processes are."""
    threads, processes = taken
    print(
        f"  {what:16} threads {threads:5.1f}, processes {processes:5.1f}, ratio {threads / processes:.2f}", flush=True
    )


if __name__ == "__main__":
    main()
