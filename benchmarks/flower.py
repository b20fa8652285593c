"""The same FedAvg by the command and in Flower's simulation on Ray: rounds a minute, and memory.

FEDFISHER_DATA_DIR=... python -m benchmarks.flower [--environment FOLDER]

A thousand clients of 60 digits each hold full MNIST; 20 of them train LeNet in each round, on two processor cores.
Both sides measure the global network on all test images after every round. Each is run with a few rounds and with
many, and the difference of the clock is divided by that of the rounds, so that neither side's start counts. Memory is
the most that all processes of a side held at once, what they share counted once (PSS).

Flower and Ray are installed from the registry into an environment of their own, which is kept for the next time.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.peers import FLOWER, FLOWER_HOME, flower, watched, write_examples
from benchmarks.trees import HERE, Tree
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.reporting.rows import read_rows

CLIENTS, COHORT, WORKERS = 1000, 20, 2
EPOCHS, BATCH_SIZE, LEARNING_RATE = 1, 16, 0.05
FEW, MANY = 2, 22
FASTER, MEMORY = 3.0, 1.0


@dataclass(frozen=True)
class Figures:
    """What one side took.

    Args:
        seconds: of the whole command, by the number of its rounds.
        bytes: the most that its processes held at once, in the longer of the two.
        accuracy: of the last network, in percent.
    """

    seconds: dict[int, float]
    bytes: int
    accuracy: float

    @property
    def rounds_a_minute(self) -> float:
        """Further rounds in a minute."""
        return 60 * (MANY - FEW) / (self.seconds[MANY] - self.seconds[FEW])

    def __str__(self) -> str:
        return (
            f"{self.rounds_a_minute:6.1f} rounds a minute, {MANY} rounds in {self.seconds[MANY]:.0f} s, "
            f"{self.bytes / 2**20:,.0f} MiB, {self.accuracy:.1f} % right"
        )


def settings_of(rounds: int) -> dict[str, Any]:
    """Write the settings of this project's side."""
    return {
        "name": "flower",
        "seeds": 0,
        "data": {"dataset": "mnist"},
        "partition": {"scheme": "iid", "clients": CLIENTS},
        "model": {"name": "lenet"},
        "train": {
            "epochs": EPOCHS,
            "batch_size": BATCH_SIZE,
            "learning_rate": LEARNING_RATE,
            "momentum": 0.0,
            "weight_decay": 0.0,
        },
        "rounds": {"count": rounds, "cohort": COHORT, "keep": 1},
        "methods": {"fedavg": {}},
        "run": {"device": "cpu", "runner": "threads", "workers": WORKERS},
    }


def measured(run: Callable[[int], float]) -> Figures:
    """Run a side with few rounds and with many.

    Args:
        run: does so many rounds, and gives the accuracy of the last network in percent.

    Returns:
        What it took.
    """
    seconds, most, accuracy = {}, 0, 0.0
    for rounds in (FEW, MANY):
        with watched() as held:
            begun = time.perf_counter()
            accuracy = run(rounds)
            seconds[rounds] = time.perf_counter() - begun
        most = held()
    return Figures(seconds, most, accuracy)


def main() -> None:
    """Print both sides, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path, default=FLOWER_HOME, help=f"of Flower and Ray ({FLOWER_HOME})")
    environment = parser.parse_args().environment
    if "FEDFISHER_DATA_DIR" not in os.environ:
        print("skipped: FEDFISHER_DATA_DIR is not set, and this needs full MNIST")
        return
    peer = flower(environment)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tree = Tree(root=HERE, home=folder / "prefect", data=Path(os.environ["FEDFISHER_DATA_DIR"]))
        options = {
            "examples": str(write_examples(settings_of(1), folder / "store", folder)),
            "cohort": COHORT,
            "epochs": EPOCHS,
            "batch_size": BATCH_SIZE,
            "learning_rate": LEARNING_RATE,
        }

        def ours(rounds: int) -> float:
            place = folder / str(rounds)
            place.mkdir()
            (place / "params.yaml").write_text(yaml.safe_dump(settings_of(rounds)))
            tree.fedfisher(place, "run")
            (row,) = read_rows(place / "results" / "flower" / "results.json", Row)
            return 100 * row.accuracy

        theirs, own = measured(lambda rounds: peer.run({**options, "rounds": rounds})), measured(ours)
    print(f"{CLIENTS} clients, {COHORT} a round, {WORKERS} cores; {', '.join(FLOWER[:2])}")
    print(f"Flower     {theirs}")
    print(f"fedfisher  {own}")
    faster, memory = own.rounds_a_minute / theirs.rounds_a_minute, own.bytes / theirs.bytes
    print(f"{'met   ' if faster >= FASTER else 'MISSED'}  rounds a minute, ratio {faster:.2f} (>= {FASTER:g})")
    print(f"{'met   ' if memory <= MEMORY else 'MISSED'}  memory, ratio {memory:.2f} (<= {MEMORY:g})")


if __name__ == "__main__":
    main()
