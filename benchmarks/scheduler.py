"""What one job costs each process of a run on Dask: scheduler, workers, the flow and Prefect's server.

python -m benchmarks.scheduler [--jobs 1000 5000 20000]

A scheduler and two workers of this machine are processes of their own, as on a cluster, and so is Prefect's server.
They run jobs that have nothing to do, after a first hundred that has every process load its modules. What is printed is
processor time, user and system, so that other work on the machine does little harm.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from benchmarks.naps import naps
from benchmarks.scale import TASKS, WORKERS, by_runner
from fedfisher_core.settings import WorkSettings
from fedfisher_core.settings.work import DaskSettings
from flows.server import PrefectServer

_DASK = (sys.executable, "-m", "dask")
_LOOPBACK = ("--host", "127.0.0.1", "--no-dashboard")
_WARM_UP = 100


@dataclass(frozen=True)
class Usage:
    """What one side has used up to now.

    Args:
        seconds: of processor time, user and system, of all its processes.
        memory: resident bytes of all its processes.
    """

    seconds: float
    memory: int

    @classmethod
    def of(cls, processes: list[psutil.Process]) -> "Usage":
        """Add processes up."""
        times = [process.cpu_times() for process in processes]
        memory = sum(process.memory_info().rss for process in processes)
        return cls(sum(time.user + time.system for time in times), memory)


@contextmanager
def process(*command: str) -> Iterator[psutil.Process]:
    """Start a process that ends with the block.

    Args:
        command: its program and arguments.

    Yields:
        The process.
    """
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield psutil.Process(started.pid)
    finally:
        started.kill()
        started.wait()


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, dict[str, list[psutil.Process]]]]:
    """Start a scheduler and its workers.

    Args:
        folder: for what they write.

    Yields:
        The scheduler's address, and the processes by side.
    """
    from distributed import Client

    file = str(folder / "scheduler.json")
    with ExitStack() as stack:
        scheduler = stack.enter_context(
            process(*_DASK, "scheduler", *_LOOPBACK, "--port", "0", "--scheduler-file", file)
        )
        options = ("--scheduler-file", file, "--nthreads", "1", "--no-nanny", "--local-directory", str(folder))
        workers = [stack.enter_context(process(*_DASK, "worker", *_LOOPBACK, *options)) for _ in range(WORKERS)]
        with Client(scheduler_file=file, timeout=120, set_as_default=False) as client:
            client.wait_for_workers(WORKERS, timeout=120)
            address = client.scheduler.address
        yield address, {"scheduler": [scheduler], f"{WORKERS} workers": workers}


def main() -> None:
    """Print processor time a job and memory of every side, for each number of jobs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1000, 5000, 20000], help="how many, one run each")
    given = parser.parse_args()
    torch.set_num_threads(1)
    # Before Prefect is imported, which each task would have log.
    os.environ |= {"PREFECT_LOGGING_LEVEL": "ERROR", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    PrefectServer(None).wait()
    own = psutil.Process()
    sides = {"flow": [own], "Prefect's server": own.children()}
    with tempfile.TemporaryDirectory() as name, cluster(Path(name)) as (address, others):
        sides |= others

        def run(count: int) -> None:
            dask = DaskSettings(scheduler=address)
            place = Path(name) / f"{count}"
            by_runner(
                WorkSettings(runner="dask", workers=WORKERS, store=place, dask=dask), naps(count, 0.0, tasks=TASKS)
            )

        run(_WARM_UP)
        for count in given.jobs:
            before = {side: Usage.of(processes) for side, processes in sides.items()}
            run(count)
            print(f"{count} jobs")
            for side, processes in sides.items():
                after = Usage.of(processes)
                spent = after.seconds - before[side].seconds
                print(
                    f"  {side}: {spent:.1f} s of a core, {1000 * spent / count:.2f} ms a job, "
                    f"{before[side].memory / 2**20:.0f} MiB before, {after.memory / 2**20:.0f} after",
                    flush=True,
                )


if __name__ == "__main__":
    main()
