"""Handing groups of batches over to what runs tasks, and getting each result once."""

import math
import queue
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from prefect.futures import PrefectFuture

from fedfisher_core.batches import Batch
from fedfisher_core.errors import JobError
from fedfisher_core.reporting.formats import plural
from fedfisher_core.settings import RunSettings, WorkSettings
from fedfisher_core.store import Store
from flows.workers import Workers
from tasks.job import Done, do_alone, do_each, run_jobs
from tasks.options import limited

# What a job raised; or, where the project is missing or older, what kept it from being understood.
_OF_ONE_MACHINE = (JobError, ImportError, AttributeError)


@dataclass
class _Handed:
    """A group under way.

    Args:
        group: of batches.
        late: when another task is started for it, on the monotonic clock.
        tasks: that are under way for it.
        started: how many tasks were started for it.
        last: of these.
        settled: whether one of them has its result.
    """

    group: tuple[Batch, ...]
    late: float
    tasks: int = 0
    started: int = 0
    last: PrefectFuture[Any] | None = None
    settled: bool = False


class Handing:
    """The tasks under way.

    A group whose task takes too long is given to another worker as well, where that is wanted: the first result
    counts, and the store keeps either. One whose task fails on one of several machines is tried on another.

    Args:
        workers: run the tasks.
        store: keeps the results.
        run: how the work is carried out.
    """

    def __init__(self, workers: Workers, store: Store, run: WorkSettings) -> None:
        self._workers = workers
        self._store = store
        # What fails in company is tried again alone, with the retries that it may have.
        self._alone, self._together = limited(run_jobs, run), limited(run_jobs, run.model_copy(update={"retries": 0}))
        self._share_gpu = isinstance(run, RunSettings) and run.share_gpu
        self._finished: queue.SimpleQueue[PrefectFuture[Any]] = queue.SimpleQueue()
        self._running: dict[Any, _Handed] = {}

    @property
    def has_room(self) -> bool:
        """Whether another group can be handed over."""
        return len(self._running) < self._workers.places

    def hand_over(self, group: Sequence[Batch]) -> None:
        """Start a task.

        Args:
            group: batches that it computes one after another; at least one.
        """
        self._start(_Handed(tuple(group), time.monotonic() + self._workers.patience))

    def wait(self) -> tuple[tuple[Batch, ...], list[Done] | Exception]:
        """Wait for a group.

        Returns:
            The group; and the result of its task, an entry for each batch, or why it has failed.

        Raises:
            InputError: what runs tasks is gone.
        """
        while True:
            try:
                future = self._finished.get(timeout=self._seconds_until_late())
            except queue.Empty:
                self._start_late_again()
                continue
            handed = self._running.pop(future.task_run_id)
            handed.tasks -= 1
            result = self._result(future)
            if isinstance(result, _OF_ONE_MACHINE) and handed.started == 1 and self._is_spread(handed):
                # The machine may be the reason. Its mistakes are quick, so that it would soon have all of the work.
                handed.late = math.inf
                self._start(handed)
                continue
            # As long as another task may still make it, nothing is lost.
            if not handed.settled and not (isinstance(result, Exception) and handed.tasks):
                handed.settled = True
                return handed.group, result

    def _start(self, handed: _Handed) -> None:
        first, *others = handed.group
        work = partial(do_each, handed.group) if others else partial(do_alone, first)
        whole = partial(work, self._store, share_gpu=self._share_gpu)
        title = f"{first.name} and {plural(len(others), 'other')}" if others else first.name
        future = self._workers.submit(
            self._together if others else self._alone,
            parameters={"title": title, "work": self._workers.guarded(whole)},
            job=first.jobs[0],
            before=handed.last,
        )
        handed.last = future
        handed.tasks += 1
        handed.started += 1
        self._running[future.task_run_id] = handed
        future.add_done_callback(self._finished.put)

    def _is_spread(self, handed: _Handed) -> bool:
        return self._workers.is_spread(handed.group[0].jobs[0])

    def _seconds_until_late(self) -> float | None:
        """How long nothing is late; None if nothing will be."""
        late = min((one.late for one in self._running.values() if not one.settled), default=math.inf)
        return None if late == math.inf else max(0.0, late - time.monotonic())

    def _start_late_again(self) -> None:
        for handed in {id(one): one for one in self._running.values()}.values():
            if not handed.settled and handed.late <= time.monotonic():
                handed.late = math.inf
                self._start(handed)

    def _result(self, future: PrefectFuture[Any]) -> Any:
        """Get what a task has returned or raised, or why the runner could not have it run."""
        try:
            return future.result(raise_on_failure=False)
        except Exception as error:  # noqa: BLE001 - whatever keeps a runner from a task is why its jobs are missing.
            self._workers.require_there(error)
            return error
