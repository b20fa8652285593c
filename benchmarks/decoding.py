"""Images that are made ready, in this tree and in an earlier one.

    FEDFISHER_DATA_DIR=... python -m benchmarks.decoding [--before 39086b3] [--turns 3]

The job that decodes MNIST runs in a process of its own: for 600 examples (500 to train on, 100 held out), for 600 and
all test images, and for all 70,000. Seconds are those of the job, with the libraries that it loads when it needs them.
Then the command runs ten clients on 600 examples, with its temporary Prefect server; there, processor seconds are those
of the whole command. The trees take turns.
"""

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from benchmarks.trees import HERE, Spent, Tree, checked_out

BEFORE = "39086b3"
_DECODE = """
import json, sys, time
from fedfisher_core.data.sampling import Sample
try:
    from fedfisher_core.federation.decoding import DecodeData
except ImportError:  # The earlier tree has it in a module of its own.
    from fedfisher_core.federation.decoding import DecodeData

job = DecodeData("mnist", None, Sample(**json.loads(sys.argv[1])), name="decode")
wall, processor = time.perf_counter(), time.process_time()
content = job.compute(None)
print(json.dumps([time.perf_counter() - wall, time.process_time() - processor]))
"""
_RUN: dict[str, Any] = {
    "name": "decoding",
    "seeds": 0,
    "data": {"dataset": "mnist", "examples": 600, "validation_size": 0},
    "partition": {"scheme": "iid", "clients": 10},
    "train": {"epochs": 1},
    "methods": {"fedavg": {}, "fedfisher_diag": {}},
    "run": {"device": "cpu", "runner": "threads", "workers": 2},
}
SAMPLES = {
    "500 images and 100 held out": {"examples": 500, "held_out": 100},
    "600 images and 10,000 for tests": {"examples": 600},
    "all 70,000 images": {},
}
_Work = Callable[[Tree, Path], Spent]


def decode(sample: dict[str, int]) -> _Work:
    """Decode a sample in a process of its own."""

    def work(tree: Tree, folder: Path) -> Spent:
        printed = tree.python(folder, _DECODE, json.dumps(sample))[1]
        return Spent(*json.loads(printed))

    return work


def run(tree: Tree, folder: Path) -> Spent:
    """Run the command in a folder of its own."""
    folder.mkdir(parents=True)
    (folder / "params.yaml").write_text(yaml.safe_dump(_RUN))
    return tree.fedfisher(folder, "run")


def main() -> None:
    """Print what both trees take, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default=BEFORE, help=f"commit of the earlier tree ({BEFORE})")
    parser.add_argument("--turns", type=int, default=3, help="of both trees (3)")
    options = parser.parse_args()
    works: dict[str, tuple[_Work, str, float]] = {
        title: (decode(sample), "wall" if not sample else "processor", 1 / 1.5 if not sample else 0.1)
        for title, sample in SAMPLES.items()
    }
    works["a run of 10 clients on 600 examples"] = (run, "processor", 0.7)
    data = Path(os.environ.get("FEDFISHER_DATA_DIR", HERE / "data"))
    with tempfile.TemporaryDirectory() as name, checked_out(options.before, Path(name) / "earlier") as earlier:
        trees = [Tree(root, Path(name) / f"prefect-{place}", data) for place, root in enumerate((HERE, earlier))]
        for number, (title, (work, measure, most)) in enumerate(works.items()):
            # The first turn compiles modules, and makes what is kept from run to run.
            turns = [
                [work(tree, Path(name) / f"{number}-{turn}-{place}") for place, tree in enumerate(trees)]
                for turn in range(options.turns + 1)
            ][1:]
            print(title)
            for side, spent in zip(("this tree", options.before), zip(*turns, strict=True), strict=True):
                print(
                    f"  {side:9}  {statistics.median(one.wall for one in spent):6.2f} s, "
                    f"{statistics.median(one.processor for one in spent):6.2f} s of a core"
                )
            ratios = [getattr(now, measure) / getattr(before, measure) for now, before in turns]
            ratio = statistics.median(ratios)
            print(
                f"  {'met   ' if ratio <= most else 'MISSED'}  {measure} seconds: {ratio:.3f} of those before, from "
                f"{min(ratios):.3f} to {max(ratios):.3f} (at most {most:.2f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
