"""Tasks on Dask: on a cluster of this machine that ends with the run, or on one that is there."""

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import dask
from distributed import KilledWorker
from prefect import Task
from prefect.futures import PrefectFuture
from prefect.task_runners import ThreadPoolTaskRunner
from prefect_dask import DaskTaskRunner
from prefect_dask.task_runners import PrefectDaskFuture

from fedfisher_core.errors import InputError
from fedfisher_core.jobs import Job
from fedfisher_core.settings import WorkSettings
from fedfisher_core.store import Mark, open_store
from flows.cluster import GPU, Guarded, versions
from flows.console import configure_logging
from flows.dask_client import quieten
from flows.desertion import warned_of
from flows.packed import Packed
from flows.workers import Workers

# While a task's result travels, its worker has the next one already.
_AHEAD = 1

R = TypeVar("R")


class _Runner(DaskTaskRunner):
    """Gives each task a key of its own.

    By default Dask makes the key of a function and its arguments, which it pickles and reads back up to three times.
    """

    def submit(  # type: ignore[override]
        self,
        task: Task[..., Any],
        parameters: dict[str, Any],
        wait_for: Any = None,
        dependencies: Any = None,
    ) -> PrefectDaskFuture[Any]:
        """See `DaskTaskRunner.submit`."""
        future = self.client.submit(
            task,
            parameters=parameters,
            wait_for=wait_for,
            dependencies=dependencies,
            return_type="state",
            pure=False,
        )
        return PrefectDaskFuture(wrapped_future=future, task_run_id=future.task_run_id)


class DaskWorkers(Workers):
    """Workers of Dask; tasks that read more than the store run on this machine.

    Args:
        run: how the work is carried out.
        count: workers of a cluster on this machine; one that is there has its own.
    """

    def __init__(self, run: WorkSettings, count: int) -> None:
        quieten()
        self._address = run.dask.scheduler
        self._dask = _Runner(address=self._address) if self._address else _cluster_here(count)
        self._home: ThreadPoolTaskRunner[Any] = ThreadPoolTaskRunner(max_workers=1)
        self._stack = ExitStack()
        self.patience = run.dask.straggler_seconds
        self._kept_for: dict[Any, frozenset[str]] = {}
        self._store = open_store(run.store, run.cache).absolute()
        self._mark: Mark | None = None
        super().__init__(self._dask, count)

    def __enter__(self) -> "DaskWorkers":
        with ExitStack() as stack:
            stack.enter_context(self._home)
            stack.enter_context(self._dask)
            if self._address is not None:
                self._mark = stack.enter_context(self._store.marked())
                stack.enter_context(warned_of(self._dask.client, self._address))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._stack.__exit__(*reason)

    @property
    def count(self) -> int:
        """How many workers there are now, at least one: they come and go."""
        with self._answered():
            return max(1, sum(self._dask.client.nthreads().values()))

    @property
    def places(self) -> int:
        """How many tasks are handed over at once."""
        return self.count * (1 + _AHEAD)

    def submit(
        self,
        task: Task[..., Any],
        parameters: dict[str, Any],
        job: Job[Any],
        before: PrefectFuture[Any] | None = None,
    ) -> PrefectFuture[Any]:
        """Hand a task over, to a worker with a GPU where it needs one of those elsewhere."""
        if job.reads_sources:
            return self._home.submit(task, parameters=parameters)
        needed = {GPU: 1} if self._address and job.numerics.device != "cpu" else {}
        with self._answered():
            elsewhere = self._elsewhere(before)
            # Dask gives an idle worker what was only preferred to be elsewhere.
            with dask.annotate(resources=needed, **({"workers": sorted(elsewhere)} if elsewhere else {})):
                future = self._dask.submit(task, parameters=parameters)
        if elsewhere:
            self._kept_for[future.wrapped_future.key] = elsewhere
        return future

    def is_stranded(self, future: PrefectFuture[Any]) -> bool:
        """See `Workers.is_stranded`; Dask has a task wait for the workers that it named, whoever comes after."""
        if not isinstance(future, PrefectDaskFuture):
            return False
        kept_for = self._kept_for.get(future.wrapped_future.key)
        with self._answered():
            return kept_for is not None and not kept_for & self._dask.client.nthreads().keys()

    def forget(self, future: PrefectFuture[Any]) -> None:
        """See `Workers.forget`; a scheduler holds a task, and all that it was given, as long as its future lives."""
        if isinstance(future, PrefectDaskFuture):
            self._kept_for.pop(future.wrapped_future.key, None)
            # It has a callback that refers to it, so that it would live until Python looks for such circles.
            future.wrapped_future.release()

    def guarded(self, work: Callable[[], R], job: Job[Any]) -> Callable[[], R]:
        """See `Workers.guarded`; workers of a cluster that was there may have come after all were looked at."""
        if job.reads_sources:
            return work
        packed = Packed(work)
        return packed if self._mark is None else Guarded(versions(), self._store, self._mark, packed)

    def _elsewhere(self, before: PrefectFuture[Any] | None) -> frozenset[str]:
        """The workers but for the one where another task runs or ran; none where there is no other, or no such task."""
        if not isinstance(before, PrefectDaskFuture):
            return frozenset()
        client, future = self._dask.client, before.wrapped_future
        running = client.processing()
        had = {address for address, keys in running.items() if future.key in keys}
        return frozenset(running.keys() - had.union(*client.who_has([future]).values()))

    def is_spread(self, job: Job[Any]) -> bool:
        """See `Workers.is_spread`; all workers of a cluster that is of this run are on this machine."""
        return self._address is not None and not job.reads_sources

    def has_ended(self, result: object) -> bool:
        """See `Workers.has_ended`; when a worker dies, Dask suspects all that it was given."""
        return isinstance(result, KilledWorker)

    def require_there(self, error: Exception) -> None:
        """Check that the scheduler still answers; nobody else takes tasks back."""
        if isinstance(error, CancelledError | OSError) or self._dask.client.status != "running":
            place = "of this run" if self._address is None else f"run.dask.scheduler={self._address!r}"
            raise InputError(
                f"the Dask scheduler {place} is gone; what was done is kept, and another run goes on from it"
            ) from error

    @contextmanager
    def _answered(self) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError) as error:
            self.require_there(error)
            raise


def _cluster_here(count: int) -> _Runner:
    return _Runner(
        cluster_kwargs={
            "n_workers": count,
            # A job sets the threads of its tensor operations for its whole process.
            "threads_per_worker": 1,
            "processes": True,
            "host": "127.0.0.1",
            # Two runs at a time would ask for the same port.
            "dashboard_address": "127.0.0.1:0",
            # What a job needs is the benchmark's to know; a worker that Dask ends for it would lose the job.
            "memory_limit": 0,
            "preload": [__name__],
        }
    )


def dask_setup(worker: object) -> None:
    """Make a worker as quiet as the command; Dask calls it in workers of this machine when they start."""
    configure_logging()
    quieten()
