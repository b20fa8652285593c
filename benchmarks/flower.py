"""The same FedAvg by the command and in Flower's simulation on Ray: rounds a minute, and memory.

FEDFISHER_DATA_DIR=... python -m benchmarks.flower [--environment FOLDER]

A thousand clients of 60 digits each hold full MNIST; 20 of them train LeNet in each round, on two processor cores.
Both sides measure the global network on all test images after every round. Each is run with a few rounds and with
many, and the difference of the clock is divided by that of the rounds, so that neither side's start counts. Memory is
the most that all processes of a side held at once, what they share counted once (PSS).

Flower and Ray are installed from the registry into an environment of their own, which is kept for the next time.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
import yaml

from benchmarks.held import clients_data
from benchmarks.trees import HERE, Tree
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.reporting.rows import read_rows

CLIENTS, COHORT, WORKERS = 1000, 20, 2
EPOCHS, BATCH_SIZE, LEARNING_RATE = 1, 16, 0.05
FEW, MANY = 2, 22
FASTER, MEMORY = 3.0, 1.0
PACKAGES = ("flwr[simulation]==1.41.0", "ray==2.55.1", f"torch=={torch.__version__.partition('+')[0]}", "numpy")
_SECONDS_BETWEEN = 0.5


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


@contextmanager
def watched() -> Iterator[Callable[[], int]]:
    """Watch the memory of all processes that this one starts.

    Yields:
        Gives the most bytes that they held at once.
    """
    most, ended = 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not ended.wait(_SECONDS_BETWEEN):
            most = max(most, _held())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lambda: most
    finally:
        ended.set()
        watcher.join()


def _held() -> int:
    held = 0
    for process in psutil.Process().children(recursive=True):
        # It may have ended since it was listed.
        with suppress(psutil.NoSuchProcess):
            held += process.memory_full_info().pss
    return held


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


def write_examples(folder: Path) -> Path:
    """Write what each client holds where Flower's side finds it.

    Args:
        folder: where the file goes.

    Returns:
        The file.
    """
    data = clients_data(settings_of(1), folder / "store")
    held, test = data.clients, data.test
    np.savez(
        folder / "examples.npz",
        inputs=torch.cat([own.inputs for own in held]).numpy(),
        labels=torch.cat([own.labels for own in held]).numpy(),
        ends=np.cumsum([len(own) for own in held]),
        test_inputs=test.inputs.numpy(),
        test_labels=test.labels.numpy(),
    )
    return folder / "examples.npz"


def flower_python(environment: Path) -> Path:
    """Find the interpreter of Flower's environment, which is made where it is missing."""
    python = environment / "bin" / "python"
    if not python.exists():
        print(f"installing {', '.join(PACKAGES)} into {environment}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return python


def main() -> None:
    """Print both sides, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    home = Path.home() / ".cache" / "fedfisher" / "flower"
    parser.add_argument("--environment", type=Path, default=home, help=f"of Flower and Ray ({home})")
    environment = parser.parse_args().environment
    if "FEDFISHER_DATA_DIR" not in os.environ:
        print("skipped: FEDFISHER_DATA_DIR is not set, and this needs full MNIST")
        return
    python = flower_python(environment)
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tree = Tree(root=HERE, home=folder / "prefect", data=Path(os.environ["FEDFISHER_DATA_DIR"]))
        examples = write_examples(folder)

        def ours(rounds: int) -> float:
            place = folder / str(rounds)
            place.mkdir()
            (place / "params.yaml").write_text(yaml.safe_dump(settings_of(rounds)))
            tree.fedfisher(place, "run")
            (row,) = read_rows(place / "results" / "flower" / "results.json", Row)
            return 100 * row.accuracy

        def flower(rounds: int) -> float:
            options = {
                "examples": str(examples),
                "rounds": rounds,
                "cohort": COHORT,
                "epochs": EPOCHS,
                "batch_size": BATCH_SIZE,
                "learning_rate": LEARNING_RATE,
            }
            told = {"FLOWER_APP": json.dumps(options), "PYTHONPATH": str(HERE / "benchmarks")}
            command = [str(python), "-c", "import flower_app; flower_app.run()"]
            done = subprocess.run(command, env=os.environ | quiet | told, capture_output=True, text=True)
            if done.returncode != 0:
                print(done.stderr[-4000:], file=sys.stderr)
                done.check_returncode()
            (line,) = (one for one in done.stdout.splitlines() if one.startswith("RESULT "))
            return float(json.loads(line.removeprefix("RESULT "))["accuracy"])

        theirs, own = measured(flower), measured(ours)
    print(f"{CLIENTS} clients, {COHORT} a round, {WORKERS} cores; {', '.join(PACKAGES[:2])}")
    print(f"Flower     {theirs}")
    print(f"fedfisher  {own}")
    faster, memory = own.rounds_a_minute / theirs.rounds_a_minute, own.bytes / theirs.bytes
    print(f"{'met   ' if faster >= FASTER else 'MISSED'}  rounds a minute, ratio {faster:.2f} (>= {FASTER:g})")
    print(f"{'met   ' if memory <= MEMORY else 'MISSED'}  memory, ratio {memory:.2f} (<= {MEMORY:g})")


if __name__ == "__main__":
    main()
