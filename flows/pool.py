"""One pool for all jobs of an experiment: whatever is ready runs, and its result decides what is ready next."""

import logging
import os
import queue
from functools import partial
from typing import Any

from prefect.futures import PrefectFuture

from fedfisher_core.batches import Batch
from fedfisher_core.reporting.formats import plural
from fedfisher_core.settings import WorkSettings
from fedfisher_core.store import Lease, Store
from fedfisher_core.walk import Walk
from flows.grouping import Groups
from flows.progress import Progress
from flows.workers import started
from tasks.job import do_alone, do_each, run_jobs
from tasks.options import limited

log = logging.getLogger("fedfisher")


def walk_in_tasks(walk: Walk, store: Store, lease: Lease, run: WorkSettings, *, name: str) -> None:
    """Do what is left of a walk in Prefect tasks, a long batch in one and short ones together.

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
    groups = Groups(walk, workers)
    # What fails in company is tried again alone, with the retries that it may have.
    alone, together = limited(run_jobs, run), limited(run_jobs, run.model_copy(update={"retries": 0}))
    finished: queue.SimpleQueue[PrefectFuture[Any]] = queue.SimpleQueue()
    running: dict[Any, tuple[Batch, ...]] = {}
    with Progress(name=name, total=len(walk.graph), done=walk.done) as progress, started(run, workers) as runner:
        while not walk.finished:
            while len(running) < workers and (group := groups.take()):
                first, *others = group
                work = partial(do_each, group, store) if others else partial(do_alone, first, store)
                title = f"{first.name} and {plural(len(others), 'other')}" if others else first.name
                future = runner.submit(together if others else alone, parameters={"title": title, "work": work})
                running[future.task_run_id] = group
                future.add_done_callback(finished.put)
            future = finished.get()
            result = future.result(raise_on_failure=False)
            for failure in groups.settle(running.pop(future.task_run_id), result):
                log.error("%s: %s", failure.job, failure.reason)
            walk.shed(lease)
            progress.advance_to(walk.done)
