"""What a small run takes by the command, in this tree and in an earlier one.

    python -m benchmarks.start [--before 64db47d] [--turns 3]

Four clients of 100 embedded digits train one network for an epoch, so that nearly all is the start of the command and
of its temporary Prefect server, the page, the record and the end. Both trees take turns; a run of each before these
makes what is kept from run to run. Processor time is that of the command, without its server.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import yaml

from benchmarks.trees import HERE, Spent, Tree, checked_out

BEFORE = "64db47d"
SETTINGS: dict[str, Any] = {
    "name": "start",
    "seeds": 0,
    "data": {"examples": 400, "validation_size": 0},
    "partition": {"scheme": "iid", "clients": 4},
    "train": {"epochs": 1},
    "methods": {"fedavg": {}, "fedfisher_diag": {}},
    "run": {"device": "cpu", "runner": "threads", "workers": 2},
}


def run(tree: Tree, folder: Path) -> Spent:
    """Run the command in a folder of its own.

    Args:
        tree: runs it.
        folder: where; made.

    Returns:
        What it took.
    """
    folder.mkdir()
    (folder / "params.yaml").write_text(yaml.safe_dump(SETTINGS))
    return tree.fedfisher(folder, "run")


def main() -> None:
    """Print what both trees take, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default=BEFORE, help=f"commit of the earlier tree ({BEFORE})")
    parser.add_argument("--turns", type=int, default=3, help="of both trees (3)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, checked_out(options.before, Path(name) / "earlier") as earlier:
        trees = [
            Tree(root, Path(name) / f"prefect-{number}", HERE / "data") for number, root in enumerate((HERE, earlier))
        ]
        turns = [
            [run(tree, Path(name) / f"{turn}-{number}") for number, tree in enumerate(trees)]
            for turn in range(options.turns + 1)
        ][1:]
    for title, spent in zip(("this tree", options.before), zip(*turns, strict=True), strict=True):
        print(
            f"{title:9}  median {statistics.median(one.wall for one in spent):5.2f} s, from "
            f"{min(one.wall for one in spent):.2f} to {max(one.wall for one in spent):.2f}; "
            f"{statistics.median(one.processor for one in spent):.2f} s of a core"
        )
    ratios = [now.wall / before.wall for now, before in turns]
    print(f"ratio of seconds {statistics.median(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main()
