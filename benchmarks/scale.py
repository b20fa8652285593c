"""What it takes to run many jobs on Dask, compared with threads and a bare Dask map of the same work.

    python -m benchmarks.scale [--long 200] [--short 5000] [--bucket s3://BUCKET/PREFIX]

Two kinds of jobs, of 2 s and of 20 ms of processor time, are run by two workers of this machine. `threads` and `dask`
are this project's runners with all that belongs to a run: Prefect's tasks and the store. The jobs share a few tasks, as
the clients of a large federation do. `bare map` has Dask map the same work and writes to the same kind of store,
without Prefect. `bare work` is the number of jobs times their length, divided by the workers. All sides start and end
their workers within what is timed. With a bucket, the long jobs run once more by threads that store there, and the
requests that they send are counted.
"""

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.naps import Nap, naps
from fedfisher_core.engine.job import NOTHING
from fedfisher_core.engine.performing import Transients
from fedfisher_core.engine.plan import agenda_of
from fedfisher_core.engine.store import Store, open_store
from fedfisher_core.settings import WorkSettings
from flows.server import PrefectServer

WORKERS = 2
TASKS = 4 * WORKERS
LONG, SHORT = 2.0, 0.02
SLOWER_THAN_THREADS, SLOWER_IN_A_BUCKET, TIMES_BARE_WORK = 1.1, 1.2, 3.0


def by_runner(run: WorkSettings, jobs: list[Nap]) -> None:
    """Run jobs as any experiment's are.

    Args:
        run: the runner, its workers and its store.
        jobs: all of them.
    """
    from prefect import flow

    from flows.submitting import submit_missing

    store = open_store(run.store, run.cache).absolute()
    store.prepare()

    @flow(name="naps", persist_result=False)
    def body() -> None:
        with store.used_by_run("a benchmark") as own:
            agenda = agenda_of(jobs, store)
            outcome = submit_missing(agenda, store, Transients(agenda, store, own), run, name=run.runner)
        if outcome.failed:
            raise RuntimeError(f"{len(outcome.failed)} jobs failed: {next(iter(outcome.failed.values())).reason}")

    body()


def by_map(jobs: list[Nap], folder: Path) -> None:
    """Have Dask map the same work.

    Args:
        jobs: all of them.
        folder: of the store.
    """
    from distributed import Client, LocalCluster

    store = Store(folder.absolute())
    store.prepare()
    with (
        LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", memory_limit=0
        ) as cluster,
        Client(cluster) as client,
    ):
        client.gather(client.map(partial(_nap, store), jobs))


def _nap(store: Store, job: Nap) -> str:
    torch.set_num_threads(1)
    return store.write(job.recipe, job.compute(NOTHING)).key


@contextmanager
def counted_requests() -> Iterator[Counter[str]]:
    """Count the requests that this process sends to a bucket, those that are tried again among them.

    Yields:
        How many of each kind, such as GET.
    """
    from botocore.httpsession import URLLib3Session

    sent: Counter[str] = Counter()
    send = URLLib3Session.send

    def counting(session: Any, request: Any) -> Any:
        sent[request.method] += 1
        return send(session, request)

    with patch.object(URLLib3Session, "send", counting):
        yield sent


def seconds_of(call: Callable[[], None]) -> float:
    """Time a call by the clock."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def main() -> None:
    """Print seconds of all sides for both kinds of jobs, and what was wanted of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", type=int, default=200, help="jobs of 2 s (200)")
    parser.add_argument("--short", type=int, default=5000, help="jobs of 20 ms (5000)")
    parser.add_argument("--bucket", help="store the long jobs there as well; nothing may be in it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    # Before Prefect is imported, which each task would have log.
    os.environ |= {"PREFECT_LOGGING_LEVEL": "ERROR", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    PrefectServer(None).wait()
    with tempfile.TemporaryDirectory() as name:
        # A bucket's cache is in the working directory.
        os.chdir(name)
        for count, seconds in ((options.long, LONG), (options.short, SHORT)):
            jobs = naps(count, seconds, tasks=TASKS)
            place = Path(name) / f"{seconds}"
            sides: dict[str, Callable[[], None]] = {
                runner: partial(by_runner, WorkSettings(runner=runner, workers=WORKERS, store=place / runner), jobs)
                for runner in ("threads", "dask")
            }
            sides["bare map"] = partial(by_map, jobs, place / "map")
            spent = {"bare work": count * seconds / WORKERS}
            spent |= {side: seconds_of(call) for side, call in sides.items()}
            if options.bucket and seconds == LONG:
                there = WorkSettings(runner="threads", workers=WORKERS, store=options.bucket)
                with counted_requests() as sent:
                    spent["bucket"] = seconds_of(partial(by_runner, there, jobs))
                each = ", ".join(f"{number / count:.2f} {kind}" for kind, number in sorted(sent.items()))
                print(f"requests to the bucket, a job: {each}")
            print(
                f"{count} jobs of {seconds:g} s: " + ", ".join(f"{side} {took:.1f} s" for side, took in spent.items())
            )
            if seconds == SHORT:
                report("dask", "bare work", spent, TIMES_BARE_WORK)
                continue
            report("dask", "threads", spent, SLOWER_THAN_THREADS)
            if options.bucket:
                report("bucket", "threads", spent, SLOWER_IN_A_BUCKET)


def report(side: str, against: str, spent: Mapping[str, float], limit: float) -> None:
    """Print a ratio, and what was wanted of it.

    Args:
        side: its seconds are divided
        against: by those of this side.
        spent: seconds of all sides.
        limit: the most that was wanted.
    """
    ratio = spent[side] / spent[against]
    print(f"{'met   ' if ratio <= limit else 'MISSED'}  {side} by {against}: {ratio:.2f} (at most {limit:g})")


if __name__ == "__main__":
    main()
