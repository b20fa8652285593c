"""Memory and files of a federation by the number of its rounds and of its clients.

FEDFISHER_DATA_DIR=... python -m benchmarks.many_rounds

A thousand clients of 60 digits each hold full MNIST; 20 of them train LeNet in each of 50 rounds. What the clients of
all but the last round made is removed on the way (`rounds.keep`). It is compared with the same for 10 rounds, and for
100 clients. Memory is the most that all processes held at once, what they share counted once (PSS), the temporary
Prefect server included; files are what the store holds in the end.
"""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.peers import watched
from benchmarks.trees import HERE, Tree
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.reporting.rows import read_rows

CLIENTS, FEWER_CLIENTS = 1000, 100
ROUNDS, FEWER_ROUNDS = 50, 10
COHORT, EXAMPLES_A_CLIENT = 20, 60
MEMORY = 1.1


@dataclass(frozen=True)
class Figures:
    """What one run took.

    Args:
        seconds: of the whole command.
        memory: the most bytes that its processes held at once.
        files: bytes that the store holds in the end.
        accuracy: of the last network, a fraction.
    """

    seconds: float
    memory: int
    files: int
    accuracy: float


def settings_of(clients: int, rounds: int) -> dict[str, Any]:
    """Write the settings of a run; each client has the same number of digits for any number of clients."""
    return {
        "name": "many_rounds",
        "seeds": 0,
        "data": {"dataset": "mnist", "examples": clients * EXAMPLES_A_CLIENT},
        "partition": {"scheme": "iid", "clients": clients},
        "model": {"name": "lenet"},
        "train": {"epochs": 5, "batch_size": 16},
        "rounds": {"count": rounds, "cohort": COHORT, "keep": 1},
        "methods": {"fedavg": {}},
        "run": {"device": "cpu", "runner": "threads", "workers": 2},
    }


def measured(tree: Tree, folder: Path, settings: dict[str, Any]) -> Figures:
    """Run a federation.

    Args:
        tree: runs it.
        folder: where; made here.
        settings: of the run.

    Returns:
        What it took.
    """
    folder.mkdir()
    (folder / "params.yaml").write_text(yaml.safe_dump(settings))
    with watched() as held:
        spent = tree.fedfisher(folder, "run")
    (row,) = read_rows(folder / "results" / "many_rounds" / "results.json", Row)
    files = sum(one.stat().st_size for one in (folder / "artifacts").rglob("*") if one.is_file())
    return Figures(spent.wall, held(), files, row.accuracy)


def main() -> None:
    """Print the three runs, and what their memory says."""
    if "FEDFISHER_DATA_DIR" not in os.environ:
        print("skipped: FEDFISHER_DATA_DIR is not set, and this needs full MNIST")
        return
    found = {}
    with tempfile.TemporaryDirectory() as name:
        tree = Tree(root=HERE, home=Path(name) / "prefect", data=Path(os.environ["FEDFISHER_DATA_DIR"]).resolve())
        for clients, rounds in ((CLIENTS, FEWER_ROUNDS), (FEWER_CLIENTS, ROUNDS), (CLIENTS, ROUNDS)):
            one = measured(tree, Path(name) / f"{clients}-{rounds}", settings_of(clients, rounds))
            found[clients, rounds] = one
            print(
                f"{clients:5} clients, {COHORT} a round, {rounds} rounds: {one.seconds:.0f} s, memory "
                f"{one.memory / 2**20:,.0f} MiB, files {one.files / 2**20:,.0f} MiB, {100 * one.accuracy:.1f} % right"
            )
    whole = found[CLIENTS, ROUNDS].memory
    for what, other in (("rounds", (CLIENTS, FEWER_ROUNDS)), ("clients", (FEWER_CLIENTS, ROUNDS))):
        ratio = whole / found[other].memory
        print(f"{'met   ' if ratio <= MEMORY else 'MISSED'}  memory by that of fewer {what}: {ratio:.2f} (<= {MEMORY})")


if __name__ == "__main__":
    main()
