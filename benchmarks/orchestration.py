"""What the command, Prefect, MLflow, the store and the report add to the computation itself.

    python -m benchmarks.orchestration [help] [rerun] [tasks]

Everything is measured in this tree and in that of the commit before experiments became graphs of jobs, in turn, and
medians over the turns are compared. That tree is checked out from the project's history, and both run with the same
interpreter, each in folders of its own with a temporary Prefect server. Processor time is that of user and system
together, of the command and of what it starts.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.trees import HERE, HistoryError, Spent, Tree, checked_out

BEFORE = "7add190"
FIFTH, NO_MORE = 0.2, 1.0
TARGETS = {
    "--help: processor": FIFTH,
    "rerun: processor": FIFTH,
    "rerun: clock": FIFTH,
    "each further task that runs": NO_MORE,
    "each further task, nothing to compute": NO_MORE,
}
DEFAULT_EPOCHS = 1
CLIENTS, SEEDS = 5, 4
_TINY: dict[str, Any] = {
    "name": "tiny",
    "partition": {"alpha": [0.5], "clients": [CLIENTS]},
    "train": {"steps": 1},
    "methods": ["fedavg", "fisher_merge", "regmean", "fedfisher_diag", "fedfisher_kfac"],
    "run": {"workers": 1},
}

# The work of the tiny benchmark as plain function calls, one after the other, in each tree; both print the processor
# time without that of imports and plans, and how many tasks Prefect would run.
_PLAIN_BEFORE = """
import json, time
from pathlib import Path
import torch
from fedfisher_core.configuration import load_settings
from fedfisher_core.steps.aggregation import aggregate
from fedfisher_core.steps.clients import compute_statistics, train_client
from fedfisher_core.steps.data import decode_data
from fedfisher_core.steps.partitions import split_data
from flows.plan import make_plan
plan = make_plan(load_settings(Path("params.yaml")))
context = plan.context
torch.set_num_threads(1)
begun, tasks = time.process_time(), 1
for cell in plan.cells:
    data = decode_data(context, cell.dataset)
    partition = split_data(context, cell, data)
    clients = {}
    for client in plan.clients(cell):
        trained = train_client(context, cell, data, partition, client)
        kinds = plan.kinds(cell, client)
        clients[client] = compute_statistics(context, cell, data, partition, client, trained, kinds)
    for bound in plan.methods.values():
        aggregate(context, cell, bound, data, partition, clients)
    tasks += 1 + 2 * len(clients) + len(plan.methods)
print(json.dumps({"processor": time.process_time() - begun, "tasks": tasks}))
"""
_PLAIN_NOW = """
import json, time
from pathlib import Path
import torch
from fedfisher_core.experiments.benchmark.plan import make_plan
from fedfisher_core.experiments.loading import load
from fedfisher_core.jobs import graph_of
from fedfisher_core.store import open_store
from fedfisher_core.walk import walk_here
settings = load(Path("params.yaml"))
graph = graph_of(make_plan(settings).jobs)
torch.set_num_threads(1)
begun = time.process_time()
walk_here(graph, open_store(settings.run.store))
tasks = len({job.batch for job in graph.values()})
print(json.dumps({"processor": time.process_time() - begun, "tasks": tasks}))
"""


@dataclass(frozen=True)
class Side:
    """One of the two trees.

    Args:
        tree: runs its commands.
        work: the folder of its runs.
        plain: the program that makes plain calls in it.
    """

    tree: Tree
    work: Path
    plain: str

    def run(self, name: str) -> Spent:
        """Run the benchmark of a folder, or find that nothing is left of it."""
        return self.tree.fedfisher(self.work / name, "run")

    def write(self, name: str, settings: Mapping[str, Any]) -> None:
        """Make the folder of a benchmark."""
        folder = self.work / name
        folder.mkdir(parents=True)
        (folder / "params.yaml").write_text(yaml.safe_dump(dict(settings)))


@dataclass(frozen=True)
class Figure:
    """One number of both trees.

    Args:
        what: what was measured.
        before: of the earlier tree, a number a turn.
        now: of this tree.
        limit: the largest part of the earlier number that the new one may be; None for no target.
    """

    what: str
    before: list[float]
    now: list[float]
    limit: float | None

    def __str__(self) -> str:
        before, now = statistics.median(self.before), statistics.median(self.now)
        text = f"{self.what:48} {before:9.3f} {now:9.3f} {now / before:8.3f}"
        if self.limit is None:
            return f"        {text}"
        return f"{'met   ' if now <= self.limit * before else 'MISSED'}  {text} (at most {self.limit:g})"


def in_turn(sides: Mapping[str, Side], measure: Callable[[Side, int], dict[str, float]], turns: int) -> list[Figure]:
    """Measure both trees in turn, so that other load on the machine falls on both.

    Args:
        sides: before and now.
        measure: gives numbers by what they are; called with a tree and the number of the turn.
        turns: how many.

    Returns:
        A figure for each.
    """
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for turn in range(turns):
        for name, side in sides.items():
            found[name].append(measure(side, turn))
            print(f"  turn {turn + 1} of {turns}, {name}: {_shown(found[name][-1])}", file=sys.stderr, flush=True)
    before, now = found.values()
    return [
        Figure(what, [one[what] for one in before], [one[what] for one in now], TARGETS.get(what)) for what in before[0]
    ]


def show_help(side: Side, turn: int) -> dict[str, float]:
    """Time the command where it has nothing to do."""
    spent = side.tree.fedfisher(side.work, "--help")
    return {"--help: processor": spent.processor, "--help: clock": spent.wall}


def rerun(side: Side, turn: int) -> dict[str, float]:
    """Time a rerun of a finished benchmark."""
    spent = side.run("default")
    return {"rerun: processor": spent.processor, "rerun: clock": spent.wall}


def tasks(side: Side, turn: int) -> dict[str, float]:
    """Time first runs and reruns with one seed and with several, beside plain calls; in processor time."""
    if not side.tree.home.exists():
        # Prefect makes its database at the first use.
        side.write("first", _TINY)
        side.run("first")
    first, again, plain, count = {}, {}, {}, {}
    for seeds in (1, SEEDS):
        name = f"tiny-{seeds}-{turn}"
        side.write(name, _TINY | {"seeds": list(range(seeds))})
        first[seeds], again[seeds] = side.run(name).processor, side.run(name).processor
        side.write(f"{name}-plain", _TINY | {"seeds": list(range(seeds))})
        printed = json.loads(side.tree.python(side.work / f"{name}-plain", side.plain)[1].splitlines()[-1])
        plain[seeds], count[seeds] = printed["processor"], printed["tasks"]
    added = {seeds: first[seeds] - plain[seeds] for seeds in first}
    running, resting = added[SEEDS] - added[1], again[SEEDS] - again[1]
    more_tasks, more_seeds = count[SEEDS] - count[1], SEEDS - 1
    return {
        "first run, 1 seed, without the plain calls": added[1],
        "plain calls of 1 seed": plain[1],
        "tasks of a further seed": more_tasks / more_seeds,
        "each further task that runs": running / more_tasks,
        "each further seed that runs, without plain calls": running / more_seeds,
        "each further task, nothing to compute": resting / more_tasks,
        "each further seed, nothing to compute": resting / more_seeds,
    }


PARTS = {"help": show_help, "rerun": rerun, "tasks": tasks}


@contextmanager
def both_sides() -> Iterator[dict[str, Side]]:
    """Check the earlier tree out, and give each tree folders of its own."""
    with tempfile.TemporaryDirectory() as temporary, checked_out(BEFORE, Path(temporary, "tree")) as earlier:
        folder = Path(temporary)
        roots = {"before": (earlier, _PLAIN_BEFORE), "now": (HERE, _PLAIN_NOW)}
        sides = {
            name: Side(Tree(root, folder / f"prefect-{name}", folder / "data"), folder / name, plain)
            for name, (root, plain) in roots.items()
        }
        (folder / "data").mkdir()
        sides["now"].tree.fedfisher(folder, "data", "fetch", "mnist5k")
        # The earlier tree's modules are not compiled yet.
        sides["before"].tree.fedfisher(folder, "methods")
        yield sides


def finish_default(sides: Mapping[str, Side]) -> None:
    """Run the default benchmark once in each tree, with few epochs."""
    settings = yaml.safe_load((HERE / "params.yaml").read_text())
    settings["train"]["epochs"] = DEFAULT_EPOCHS
    for name, side in sides.items():
        side.write("default", settings)
        spent = side.run("default")
        print(f"first run, {name}: {spent.wall:.1f} s by the clock, {spent.processor:.1f} s of processor time")


def main() -> None:
    """Print every number before and now, and whether the targets are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", choices=[[], *PARTS], help=f"of {', '.join(PARTS)}; default: all"
    )
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    turns, parts = arguments.turns, arguments.parts or list(PARTS)
    try:
        with both_sides() as sides:
            print(f"{os.cpu_count()} cores, temporary Prefect servers, medians of {turns} turns; before: {BEFORE}")
            if "rerun" in parts:
                finish_default(sides)
            figures = [figure for part in parts for figure in in_turn(sides, PARTS[part], turns)]
    except HistoryError as error:
        sys.exit(f"{error}")
    print(f"        {'seconds':48} {'before':>9} {'now':>9} {'ratio':>8}")
    for figure in figures:
        print(figure)


def _shown(numbers: Mapping[str, float]) -> str:
    return ", ".join(f"{what} {number:.3f}" for what, number in numbers.items())


if __name__ == "__main__":
    main()
