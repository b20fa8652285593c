"""Whether all rows of some experiments are still what they were, to the last digit, on one machine.

    python -m benchmarks.rows --freeze FILE [--commit REVISION] [--only NAME ...]
    python -m benchmarks.rows --compare FILE [--renamed OLD=NEW ...] [--only NAME ...]

Freeze with the code before a change, and compare with the code after it. Seconds and memory are left out, and so are
the keys of artifacts, which a change of the code may move. Experiments on data that are not embedded need
FEDFISHER_DATA_DIR, and are skipped without it. Other processors and libraries round differently: a frozen file is for
the machine that made it.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.trees import HERE, Tree, checked_out

Row = Mapping[str, Any]

SHOWN = 10
"""Differences of one experiment that are printed."""


@dataclass(frozen=True)
class Case:
    """An experiment whose rows are frozen.

    Args:
        config: file of its settings.
        overrides: of these settings, for the command line.
        dataset: folder below FEDFISHER_DATA_DIR; None for what is embedded or made.
    """

    config: str
    overrides: tuple[str, ...] = ()
    dataset: str | None = None


CASES: Mapping[str, Case] = {
    "demo": Case("params.yaml"),
    "privacy_demo": Case("configs/privacy_demo.yaml"),
    "fedfish_toy": Case("configs/fedfish_toy.yaml", ("toy.seeds=[0, 1]",)),
    "theory_two_layer": Case("configs/theory_two_layer.yaml", ("two_layer.seeds=[0, 1]",)),
    "heart_disease": Case("configs/heart_disease.yaml", dataset="heart_disease"),
    "few_shot": Case("configs/few_shot.yaml", ("rounds.count=2", "data.examples=1000"), dataset="fashion_mnist"),
    "mnist_heterogeneity": Case(
        "configs/mnist_heterogeneity.yaml", ("seeds=[0]", "report.published=null"), dataset="mnist"
    ),
}


def rows_of(name: str, tree: Tree, folder: Path) -> list[dict[str, Any]]:
    """Run an experiment.

    Args:
        name: of the experiment.
        tree: runs it, with its own file of settings.
        folder: where; made.

    Returns:
        What is compared of its rows.
    """
    case = CASES[name]
    overrides = [argument for one in case.overrides for argument in ("--set", one)]
    folder.mkdir()
    spent = tree.fedfisher(folder, "run", str(tree.root / case.config), *overrides)
    # A report of other settings than the file's own has their digest in its name.
    (results,) = folder.glob("results/*/results.json")
    rows = json.loads(results.read_text())
    print(f"ran     {name}: {len(rows)} rows in {spent.wall:.0f} s, {spent.processor:.0f} s of a core", flush=True)
    return [compared(row) for row in rows]


def compared(row: Row) -> dict[str, Any]:
    """Leave out what no two runs share, and the key of the artifact."""
    return {
        column: compared(value) if isinstance(value, Mapping) else value
        for column, value in row.items()
        if not column.endswith(("seconds", "memory_bytes")) and column != "artifact"
    }


def differences(before: Sequence[Row], after: Sequence[Row]) -> Iterator[str]:
    """Say in which values two lists of rows differ, one line a value."""
    if len(before) != len(after):
        yield f"{len(before)} rows were frozen, and there are {len(after)}"
    for number, (one, other) in enumerate(zip(before, after, strict=False)):
        for column in [*one, *(column for column in other if column not in one)]:
            was, now = (repr(row[column]) if column in row else "no such column" for row in (one, other))
            if was != now:
                described = ", ".join(str(one[key]) for key in ("method", "seed") if key in one)
                yield f"row {number} ({described}): {column} was {was}, is {now}"


def main() -> None:
    """Freeze rows, or print where they differ from frozen ones; exit with 1 where they do."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    purpose = parser.add_mutually_exclusive_group(required=True)
    purpose.add_argument("--freeze", type=Path, metavar="FILE", help="write rows; other experiments' stay in the file")
    purpose.add_argument("--compare", type=Path, metavar="FILE", help="compare with rows that were frozen")
    parser.add_argument("--commit", help="runs the experiments (the working tree)")
    parser.add_argument("--renamed", nargs="+", default=[], metavar="OLD=NEW", help="columns that are called anew")
    parser.add_argument("--only", nargs="+", choices=tuple(CASES), default=list(CASES), help="experiments (all)")
    options = parser.parse_args()
    file: Path = options.freeze or options.compare
    frozen: dict[str, list[dict[str, Any]]] = json.loads(file.read_text()) if file.exists() else {}
    names = dict(pair.split("=", 1) for pair in options.renamed)
    moved = False
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with nullcontext(HERE) if options.commit is None else checked_out(options.commit, folder / "tree") as root:
            data = Path(os.environ.get("FEDFISHER_DATA_DIR", root / "data")).resolve()
            tree = Tree(root, folder / "prefect", data)
            for name in options.only:
                dataset = CASES[name].dataset
                if dataset is not None and not (data / dataset).is_dir():
                    print(f"skipped {name}: FEDFISHER_DATA_DIR names no folder with {dataset}")
                    continue
                if options.compare and name not in frozen:
                    print(f"skipped {name}: {file} has no rows of it")
                    continue
                rows = rows_of(name, tree, folder / name)
                if options.freeze:
                    frozen[name] = rows
                    file.write_text(json.dumps(frozen, indent=1))
                    continue
                before = [{names.get(column, column): value for column, value in row.items()} for row in frozen[name]]
                found = list(differences(before, rows))
                print(f"MOVED   {name}: {len(found)} values" if found else f"same    {name}", flush=True)
                print("".join(f"        {line}\n" for line in found[:SHOWN]), end="", flush=True)
                moved = moved or bool(found)
    sys.exit(moved)


if __name__ == "__main__":
    main()
