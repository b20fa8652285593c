"""What it takes to plan one-shot federations of many clients, and to walk their graphs, without computing anything.

    FEDFISHER_DATA_DIR=... python -m benchmarks.planning [--clients 1000 10000] [--walks 1 10]

Each plan is made in a process of its own, whose peak of memory has torch in it; `torch alone` says how much that is. A
walk has the graphs of several federations of the largest plan in one and looks for each result in a store. What other
jobs are named by is made, splits of MNIST and first weights; for all else a made-up result is taken. So it costs what a
run costs its own process beside tasks, Prefect and the store's files.
"""

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from fedfisher_core.batches import compute
from fedfisher_core.configuration import validate
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.jobs import Job, graph_of
from fedfisher_core.store import Artifact, Store
from fedfisher_core.walk import Walk

_REAL = ("data", "partitions", "starts")


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


def walked(clients: int, federations: int) -> int:
    """Walk the graph of several federations without computing anything.

    Args:
        clients: of each federation.
        federations: how many.

    Returns:
        How many jobs there are.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        walk = Walk(graph_of(job for seed in range(federations) for job in jobs_of(clients, seed)), store)
        while (batch := walk.take()) is not None:
            made_up = [Artifact(one.kind, one.key, one.key, Path(folder)) for one in batch.steps]
            walk.keep(batch, compute(batch, store) if batch.steps[0].kind in _REAL else made_up)
        assert walk.finished
        return walk.done


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
    return result, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def main() -> None:
    """Print jobs, seconds and memory of each plan."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[1000, 10_000], help="of the plans (1000 10000)")
    parser.add_argument("--walks", type=int, nargs="+", default=[1, 10], help="federations of the walks (1 10)")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        _, seconds, mebibytes = pool.submit(measured, torch_alone).result()
        print(f"torch alone: {seconds:.1f} s, {mebibytes:.0f} MiB")
        for clients in options.clients:
            jobs, seconds, mebibytes = pool.submit(measured, planned, clients).result()
            print(f"{clients} clients: {jobs} jobs, {seconds:.1f} s, {mebibytes:.0f} MiB")
        for count in options.walks:
            jobs, seconds, mebibytes = pool.submit(measured, walked, max(options.clients), count).result()
            print(f"walk of {count} such federations: {jobs} jobs, {seconds:.1f} s, {mebibytes:.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
