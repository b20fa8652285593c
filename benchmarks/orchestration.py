"""What Prefect, MLflow, the store and the report add to the computation itself.

    python -m benchmarks.orchestration

Runs the `fedfisher` command in an empty folder, against the same computation as plain function calls.
"""

import os
import subprocess
import sys
import tempfile
import time
from contextlib import chdir
from pathlib import Path

import torch
from flows.plan import make_plan

from fedfisher_core.configuration import load_settings
from fedfisher_core.federation.aggregation import aggregate
from fedfisher_core.federation.data import decode_data
from fedfisher_core.federation.partition import split_data
from fedfisher_core.federation.training import compute_statistics, train_client

_SETTINGS = """
name: overhead
seeds: [0]
partition: {alpha: [0.5], clients: [5]}
train: {epochs: 5}
methods: [fedavg, fisher_merge, regmean, fedfisher_diag, fedfisher_kfac]
"""


def command(folder: Path, *overrides: str) -> float:
    """Time `fedfisher run` as a whole process."""
    arguments = [str(Path(sys.executable).parent / "fedfisher"), "run"]
    begun = time.perf_counter()
    subprocess.run(
        [*arguments, *(part for one in overrides for part in ("--set", one))],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - begun


def plain(folder: Path) -> float:
    """Time the same computation as plain function calls, one after the other."""
    with chdir(folder):
        plan = make_plan(load_settings(Path("params.yaml"), ["run.store=plain"]))
        context, (cell,) = plan.context, plan.cells
        torch.set_num_threads(1)
        begun = time.perf_counter()
        data = decode_data(context, cell.dataset)
        partition = split_data(context, cell, data)
        statistics = {}
        for client in plan.clients(cell):
            trained = train_client(context, cell, data, partition, client)
            kinds = plan.kinds(cell, client)
            statistics[client] = compute_statistics(context, cell, data, partition, client, trained, kinds)
        for bound in plan.methods.values():
            aggregate(context, cell, bound, data, partition, statistics)
        return time.perf_counter() - begun


def main() -> None:
    """Print what a first run, a rerun and each further task cost."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "params.yaml").write_text(_SETTINGS)
        subprocess.run(
            [str(Path(sys.executable).parent / "fedfisher"), "data", "fetch", "mnist5k"],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        alone = plain(folder)
        first = command(folder, "run.workers=1", "name=first")
        again = command(folder, "run.workers=1", "name=first")
        # Cells that are all in the store: what is left is one task's bookkeeping, its row and its MLflow run.
        many = command(folder, "run.workers=1", "name=many", "seeds=[0,1,2,3]")
        many_again = command(folder, "run.workers=1", "name=many", "seeds=[0,1,2,3]")
    tasks = 3 * (1 + 2 * 5 + 5)
    print(f"{os.cpu_count()} cores; 5 clients, 5 methods, 1 seed, one worker, temporary Prefect server")
    print(f"first run {first:.1f} s, plain calls {alone:.1f} s: adds {first - alone:.1f} s (<= 30)")
    print(f"rerun with nothing changed: {again:.1f} s (<= 25)")
    print(
        f"each further task, nothing to compute: {(many_again - again) / tasks:.3f} s (<= 0.3); first runs {many:.1f} s"
    )


if __name__ == "__main__":
    main()
