"""A thousand one-shot clients by the command, in Flower's simulation on Ray, and on a plain pool of processes.

FEDFISHER_DATA_DIR=... python -m benchmarks.one_shot [--environment FOLDER] [--turns 5]

A thousand clients of 60 digits each hold full MNIST, and train LeNet once, on two processor cores; the server averages.
The clock is that of the whole command, start and end included; a run before all others makes Prefect's database. The
sides take turns, and each turn gives a ratio: their geometric mean has Student's 95 % interval, of their logarithms.
Memory is the most that all processes of a side held at once, what they share counted once (PSS). The command keeps each
client as an artifact, encodes its upload and records what came of it; the pool does nothing of this. The command runs
on threads and trains 25 clients in one call a step, the pool and Flower one in each process.
"""

import argparse
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.peers import FLOWER, FLOWER_HOME, Peer, flower, watched, write_examples
from benchmarks.trees import HERE, Tree
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.reporting.measure import Measure, PairedDifference
from fedfisher_core.reporting.rows import read_rows

CLIENTS, WORKERS = 1000, 2
TOGETHER = 25
EPOCHS, BATCH_SIZE, LEARNING_RATE = 5, 16, 0.05
OURS = "fedfisher"


def settings(store: Path) -> dict[str, Any]:
    """Write the settings of this project's side.

    Args:
        store: where its artifacts are.

    Returns:
        The settings of a benchmark.
    """
    return {
        "name": "one_shot",
        "seeds": 0,
        "data": {"dataset": "mnist", "validation_size": 0},
        "partition": {"scheme": "iid", "clients": CLIENTS},
        "model": {"name": "lenet"},
        "train": {
            "epochs": EPOCHS,
            "batch_size": BATCH_SIZE,
            "learning_rate": LEARNING_RATE,
            "momentum": 0.0,
            "weight_decay": 0.0,
            "together": TOGETHER,
        },
        "methods": {"fedavg": {}},
        "run": {"device": "cpu", "runner": "threads", "workers": WORKERS, "store": str(store)},
    }


def main() -> None:
    """Print all sides, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path, default=FLOWER_HOME, help=f"of Flower and Ray ({FLOWER_HOME})")
    parser.add_argument("--turns", type=int, default=5, help="of each side, at least 2 (5)")
    given = parser.parse_args()
    if "FEDFISHER_DATA_DIR" not in os.environ:
        print("skipped: FEDFISHER_DATA_DIR is not set, and this needs full MNIST")
        return
    simulation = flower(given.environment)
    pool = Peer(Path(sys.executable), "pool_app")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tree = Tree(root=HERE, home=folder / "prefect", data=Path(os.environ["FEDFISHER_DATA_DIR"]))
        decoded = folder / "decoded"
        options = {
            "examples": str(write_examples(settings(decoded), decoded, folder)),
            "rounds": 1,
            "cohort": CLIENTS,
            "epochs": EPOCHS,
            "batch_size": BATCH_SIZE,
            "learning_rate": LEARNING_RATE,
        }

        def ours() -> float:
            # Peers find their examples decoded and split; so does the command.
            with tempfile.TemporaryDirectory(dir=folder) as place:
                store = shutil.copytree(decoded, Path(place) / "store")
                (Path(place) / "params.yaml").write_text(yaml.safe_dump(settings(store)))
                tree.fedfisher(Path(place), "run")
                (row,) = read_rows(Path(place) / "results" / "one_shot" / "results.json", Row)
            return 100 * row.accuracy

        sides: dict[str, Callable[[], float]] = {
            "Flower": lambda: simulation.run(options),
            "pool": lambda: pool.run(options),
            OURS: ours,
        }
        ours()
        seconds, held = measure(sides, given.turns)
    print(f"{CLIENTS} clients, {EPOCHS} epochs of 60 digits, {WORKERS} cores; {', '.join(FLOWER[:2])}")
    for peer in ("Flower", "pool"):
        ratio, lower, upper = ratio_of(seconds[peer], seconds[OURS])
        print(
            f"{'met   ' if lower > 1 else 'MISSED'}  seconds of {peer} by ours: {ratio:.2f}, from {lower:.2f} to "
            f"{upper:.2f} (above 1)"
        )
    ratio = held[OURS] / min(held["Flower"], held["pool"])
    print(f"{'met   ' if ratio <= 1 else 'MISSED'}  memory by that of the smaller: {ratio:.2f} (at most 1)")


def ratio_of(seconds: Sequence[float], others: Sequence[float]) -> tuple[float, float, float]:
    """Compare two sides over their turns.

    Args:
        seconds: of one side, a turn each; at least two.
        others: of the other side.

    Returns:
        The geometric mean of the ratios, and the bounds of its 95 % interval.
    """
    logarithms = [math.log(one / other) for one, other in zip(seconds, others, strict=True)]
    found = Measure.of(logarithms)
    lower, upper = PairedDifference(found.mean, found.deviation, len(logarithms)).interval or (-math.inf, math.inf)
    return math.exp(found.mean), math.exp(lower), math.exp(upper)


def measure(sides: dict[str, Callable[[], float]], turns: int) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Run all sides in turns, and print each.

    Args:
        sides: each gives the accuracy of its network in percent.
        turns: how often.

    Returns:
        Seconds of each turn, and the most bytes of all turns.
    """
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    held = dict.fromkeys(sides, 0)
    for turn in range(turns):
        for side, run in sides.items():
            with watched() as most:
                begun = time.perf_counter()
                accuracy = run()
                taken = time.perf_counter() - begun
            print(
                f"turn {turn + 1}  {side:9} {taken:6.1f} s, {most() / 2**20:6,.0f} MiB, {accuracy:.1f} % right",
                flush=True,
            )
            seconds[side].append(taken)
            held[side] = max(held[side], most())
    return seconds, held


if __name__ == "__main__":
    main()
