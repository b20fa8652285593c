"""What it takes to plan one-shot federations of many clients, and to find what is missing, without computing anything.

    FEDFISHER_DATA_DIR=... python -m benchmarks.planning [--clients 1000 10000] [--federations 1 10]

Each plan is made in a process of its own, whose peak of memory has torch in it; `torch alone` says how much that is.
What is missing is found for several federations of the largest plan at once: each job gets its key and is looked for
in an empty store, and the jobs are put into tasks. So it costs what a run costs its own process without Prefect and
the store's files.
"""

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from fedfisher_core.engine.job import Job
from fedfisher_core.engine.plan import agenda_of, graph_of
from fedfisher_core.engine.store import Store
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.models.memory import most_ever_held
from fedfisher_core.settings import RunSettings
from fedfisher_core.settings.reading import validate
from flows.submitting import plan_tasks

WORKERS = 2


def torch_alone() -> int:
    """Import torch.

    Returns:
        0, as it plans no jobs.
    """
    import torch

    torch.zeros(1)
    return 0


def jobs_of(clients: int, seed: int) -> Sequence[Job[Any]]:
    """Plan FedAvg and FedFisher(Diag) with LeNets on MNIST.

    Args:
        clients: how many; each holds the same number of digits.
        seed: of the federation.

    Returns:
        The jobs.
    """
    from fedfisher_core.experiments.benchmark.plan import make_plan

    settings = {
        "seeds": seed,
        "data": {"dataset": "mnist"},
        "partition": {"scheme": "iid", "clients": clients, "min_size": 1},
        "model": {"name": "lenet"},
        "methods": {"fedavg": {}, "fedfisher_diag": {}},
    }
    return make_plan(validate(BenchmarkSettings, settings)).jobs


def planned(clients: int) -> int:
    """Plan one federation.

    Args:
        clients: how many.

    Returns:
        How many jobs there are.
    """
    return len(graph_of(jobs_of(clients, seed=0)))


def found_missing(clients: int, federations: int) -> int:
    """Find what is missing of several federations, and put it into tasks.

    Args:
        clients: of each federation.
        federations: how many.

    Returns:
        How many jobs there are.
    """
    with tempfile.TemporaryDirectory() as folder:
        jobs = [job for seed in range(federations) for job in jobs_of(clients, seed)]
        missing = agenda_of(jobs, Store(Path(folder))).missing
        plans = plan_tasks(missing, RunSettings(), WORKERS)
        assert sum(len(plan.jobs) for plan in plans) == len(missing)
        return len(missing)


def measured(call: Callable[..., int], *arguments: int) -> tuple[int, float, float]:
    """Time a call.

    Args:
        call: what is timed.
        arguments: of it.

    Returns:
        Its result, seconds of the clock, and the process's peak of memory in MiB.
    """
    begun = time.perf_counter()
    result = call(*arguments)
    seconds = time.perf_counter() - begun
    return result, seconds, most_ever_held() / 2**20


def main() -> None:
    """Print jobs, seconds and memory of each plan."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[1000, 10_000], help="of the plans (1000 10000)")
    parser.add_argument("--federations", type=int, nargs="+", default=[1, 10], help="looked for at once (1 10)")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        _, seconds, mebibytes = pool.submit(measured, torch_alone).result()
        print(f"torch alone: {seconds:.1f} s, {mebibytes:.0f} MiB")
        for clients in options.clients:
            jobs, seconds, mebibytes = pool.submit(measured, planned, clients).result()
            print(f"{clients} clients: {jobs} jobs, {seconds:.1f} s, {mebibytes:.0f} MiB")
        for count in options.federations:
            jobs, seconds, mebibytes = pool.submit(measured, found_missing, max(options.clients), count).result()
            print(f"{count} such federations missing: {jobs} jobs, {seconds:.1f} s, {mebibytes:.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
