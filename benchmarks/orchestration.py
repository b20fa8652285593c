"""What one Prefect task a client and step costs: the command now, and before Prefect scheduled all jobs.

    python -m benchmarks.orchestration [help] [demo] [rerun] [clients]

Everything is measured in this tree and in that of the commit before, in turn, and medians over the turns are compared.
That tree is checked out from the project's history, and both run with the same interpreter, each in folders of its own
with a temporary Prefect server. Processor time is that of user and system together, of the command and of what it
starts.
"""

import argparse
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

BEFORE = "39086b3"
TARGETS = {"demo: clock": 1.15, "rerun of the demo: clock": 2.0, "100 clients: clock": 1.3}
_CLIENTS: dict[str, Any] = {
    "name": "clients",
    "seeds": [0],
    "data": {"validation_size": 100},
    "partition": {"scheme": "iid", "alpha": [0.5], "clients": [100]},
    "train": {"epochs": 5},
    "methods": ["fedavg", "fedfisher_diag", "fedfisher_kfac"],
}


@dataclass(frozen=True)
class Side:
    """One of the two trees.

    Args:
        tree: runs its commands.
        work: the folder of its runs.
    """

    tree: Tree
    work: Path

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
    return _both("--help", side.tree.fedfisher(side.work, "--help"))


def demo(side: Side, turn: int) -> dict[str, float]:
    """Time the default benchmark in an empty folder."""
    name = f"demo-{turn}"
    side.write(name, yaml.safe_load((HERE / "params.yaml").read_text()))
    return _both("demo", side.run(name))


def rerun(side: Side, turn: int) -> dict[str, float]:
    """Time a rerun of the finished default benchmark."""
    if not (side.work / "demo-0").exists():
        demo(side, 0)
    return _both("rerun of the demo", side.run("demo-0"))


def clients(side: Side, turn: int) -> dict[str, float]:
    """Time a benchmark of a hundred clients, each with a task of its own for each step."""
    name = f"clients-{turn}"
    side.write(name, _CLIENTS)
    return _both("100 clients", side.run(name))


PARTS = {"help": show_help, "demo": demo, "rerun": rerun, "clients": clients}


def _both(what: str, spent: Spent) -> dict[str, float]:
    return {f"{what}: clock": spent.wall, f"{what}: processor": spent.processor}


@contextmanager
def both_sides() -> Iterator[dict[str, Side]]:
    """Check the earlier tree out, and give each tree folders of its own."""
    with tempfile.TemporaryDirectory() as temporary, checked_out(BEFORE, Path(temporary, "tree")) as earlier:
        folder = Path(temporary)
        sides = {
            name: Side(Tree(root, folder / f"prefect-{name}", folder / "data"), folder / name)
            for name, root in {"before": earlier, "now": HERE}.items()
        }
        (folder / "data").mkdir()
        sides["now"].tree.fedfisher(folder, "data", "fetch", "mnist5k")
        # The earlier tree's modules are not compiled yet.
        sides["before"].tree.fedfisher(folder, "methods")
        yield sides


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
