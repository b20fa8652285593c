"""One pool for all jobs of an experiment: whatever is ready runs, and its result decides what is ready next."""

import logging
import os
import queue
from functools import partial
from typing import Any

from prefect.futures import PrefectFuture

from fedfisher_core.settings import WorkSettings
from fedfisher_core.store import Lease, Store
from fedfisher_core.walk import Batch, Walk, compute
from flows.progress import Progress
from flows.workers import started
from tasks.job import run_job
from tasks.options import limited

log = logging.getLogger("fedfisher")


def walk_in_tasks(walk: Walk, store: Store, lease: Lease, run: WorkSettings, *, name: str) -> None:
    """Do what is left of a walk, each batch as a Prefect task.

    A task gets artifacts, never futures: one that waited for another would hold a worker that the other may need. No
    more tasks are handed to the runner than it has workers, so that the largest of all that are ready is always next.

    A job that fails is named at once, and all goes on that does not need it.

    Args:
        walk: finished in the end.
        store: keeps the results.
        lease: of this run on the store.
        run: how the work is carried out.
        name: of the experiment.
    """
    workers = run.workers or len(os.sched_getaffinity(0))
    finished: queue.SimpleQueue[PrefectFuture[Any]] = queue.SimpleQueue()
    running: dict[Any, Batch] = {}
    with Progress(name=name, total=len(walk.graph), done=walk.done) as progress, started(run, workers) as runner:
        while not walk.finished:
            while len(running) < workers and (batch := walk.take()) is not None:
                parameters = {
                    "title": batch.name,
                    "work": partial(compute, batch, store),
                    "numerics": batch.jobs[0].numerics,
                }
                future = runner.submit(limited(run_job, run), parameters=parameters)
                running[future.task_run_id] = batch
                future.add_done_callback(finished.put)
            future = finished.get()
            batch = running.pop(future.task_run_id)
            result = future.result(raise_on_failure=False)
            failure = walk.lose(batch, result) if isinstance(result, Exception) else walk.keep(batch, result)
            if failure is not None:
                log.error("%s: %s", failure.job, failure.reason)
            walk.shed(lease)
            progress.advance_to(walk.done)
