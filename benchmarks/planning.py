"""What it takes to plan one-shot federations of many clients, before anything is computed.

    python -m benchmarks.planning [--clients 1000 10000]

Each plan is made in a process of its own, whose peak of memory has torch in it; `torch alone` says how much that is.
"""

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

from fedfisher_core.configuration import validate
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings


def torch_alone() -> int:
    """Import torch.

    Returns:
        0, as it plans no jobs.
    """
    import torch

    torch.zeros(1)
    return 0


def planned(clients: int) -> int:
    """Plan FedAvg and FedFisher(Diag) with LeNets on MNIST.

    Args:
        clients: how many; each holds the same number of digits.

    Returns:
        How many jobs there are.
    """
    from fedfisher_core.experiments.benchmark.plan import make_plan
    from fedfisher_core.jobs import graph_of

    settings = {
        "seeds": 0,
        "data": {"dataset": "mnist"},
        "partition": {"scheme": "iid", "clients": clients, "min_size": 1},
        "model": {"name": "lenet"},
        "methods": {"fedavg": {}, "fedfisher_diag": {}},
    }
    return len(graph_of(make_plan(validate(BenchmarkSettings, settings)).jobs))


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
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        _, seconds, mebibytes = pool.submit(measured, torch_alone).result()
        print(f"torch alone: {seconds:.1f} s, {mebibytes:.0f} MiB")
        for clients in options.clients:
            jobs, seconds, mebibytes = pool.submit(measured, planned, clients).result()
            print(f"{clients} clients: {jobs} jobs, {seconds:.1f} s, {mebibytes:.0f} MiB")


if __name__ == "__main__":
    main()
