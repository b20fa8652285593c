"""One pool for all jobs of an experiment: whatever is ready runs, and its result decides what is ready next."""

import os
import queue
from functools import partial
from typing import Any

from prefect.futures import PrefectFuture
from prefect.task_runners import ProcessPoolTaskRunner, TaskRunner, ThreadPoolTaskRunner

from fedfisher_core.settings import WorkSettings
from fedfisher_core.store import Store
from fedfisher_core.walk import Batch, Walk, compute
from flows.progress import Progress
from tasks.job import run_job
from tasks.options import limited


def walk_in_tasks(walk: Walk, store: Store, run: WorkSettings, *, name: str) -> None:
    """Do what is left of a walk, each batch as a Prefect task.

    A task gets artifacts, never futures: one that waited for another would hold a worker that the other may need. No
    more tasks are handed to the runner than it has workers, so that the largest of all that are ready is always next.

    Args:
        walk: finished in the end.
        store: keeps the results.
        run: how the work is carried out.
        name: of the experiment.

    Raises:
        Exception: a job failed that the work can't do without.
    """
    workers = run.workers or len(os.sched_getaffinity(0))
    finished: queue.SimpleQueue[PrefectFuture[Any]] = queue.SimpleQueue()
    started: dict[Any, Batch] = {}
    with Progress(name=name, total=len(walk.graph), done=walk.done) as progress, _runner(run, workers) as runner:
        while not walk.finished:
            while len(started) < workers and (batch := walk.take()) is not None:
                parameters = {
                    "title": batch.name,
                    "work": partial(compute, batch, store),
                    "numerics": batch.jobs[0].numerics,
                }
                future = runner.submit(limited(run_job, run), parameters=parameters)
                started[future.task_run_id] = batch
                future.add_done_callback(finished.put)
            future = finished.get()
            batch = started.pop(future.task_run_id)
            result = future.result(raise_on_failure=False)
            if isinstance(result, Exception):
                walk.lose(batch, result)
            else:
                walk.keep(batch, result)
            progress.advance_to(walk.done)


def _runner(run: WorkSettings, workers: int) -> TaskRunner[Any]:
    """Choose how tasks run next to each other."""
    if run.runner == "processes":
        return ProcessPoolTaskRunner(max_workers=workers)
    return ThreadPoolTaskRunner(max_workers=workers)
