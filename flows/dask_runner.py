"""Tasks on Dask: on a cluster of this machine that ends with the run, or on a cluster that runs already."""

import signal
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from multiprocessing import resource_tracker
from typing import Any

import dask
from prefect.exceptions import TerminationSignal
from prefect.futures import PrefectFuture
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner
from prefect_dask import DaskTaskRunner

from fedfisher_core.engine.errors import InputError, OutputError
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.locks import scratch
from fedfisher_core.engine.store import Mark, open_store
from fedfisher_core.settings import WorkSettings
from flows.cluster import GPU, Guarded, versions
from flows.dask_client import quieten
from flows.submitting import Runner
from flows.terminal import configure_logging


class DaskRunner(Runner):
    """Runs tasks on workers of Dask, and tasks that read more than the store on this machine.

    Args:
        count: workers of a cluster on this machine; a cluster that runs already has its own.
    """

    def __init__(self, run: WorkSettings, count: int) -> None:
        quieten()
        self._address = run.dask.scheduler
        self._dask = DaskTaskRunner(address=self._address) if self._address else _local_cluster(count)
        self._local: TaskRunner[Any] = ThreadPoolTaskRunner(max_workers=1)
        self._store = open_store(run.store, run.cache).absolute()
        self._mark: Mark | None = None
        super().__init__(self._dask, count)

    def __enter__(self) -> "DaskRunner":
        with ExitStack() as stack:
            if self._address is None:
                # Otherwise Dask's workers leave a folder behind, which all users of a machine share.
                stack.enter_context(dask.config.set({"temporary-directory": str(stack.enter_context(scratch()))}))
            try:
                super().__enter__()
                # This starts a cluster, or connects to the scheduler.
                _shielded_from_ctrl_c(lambda: self._dask.client)
            except OSError as error:
                if self._address is not None:
                    # The scheduler was there at the check.
                    raise InputError(self._gone()) from error
                raise
            except (KeyboardInterrupt, TerminationSignal):
                # The run does not wait for workers here either: they end with this process.
                self._folder = stack.pop_all()
                raise
            stack.push(self._stack)
            stack.enter_context(self._local)
            if self._address is not None:
                self._mark = stack.enter_context(self._store.marked())
                # Workers come and go; this is their number as the run begins.
                self.count = max(1, sum(self._dask.client.nthreads().values()))
            self._stack = stack.pop_all()
        return self

    def submit(self, task: Any, parameters: dict[str, Any], needs: Any, job: Job[Any]) -> PrefectFuture[Any]:
        """Submit a task; on a cluster that runs already, a task for a GPU goes to a worker with one."""
        if job.reads_sources:
            return self._local.submit(task, parameters=parameters, dependencies={"work": needs})
        needed = {GPU: 1} if self._address and job.numerics.device != "cpu" else {}
        try:
            with dask.annotate(resources=needed):
                return super().submit(task, parameters, needs, job)
        except (OSError, RuntimeError) as error:
            self.require_alive(error)
            raise

    def prepared(self, work: Callable[[], None], job: Job[Any]) -> Callable[[], None]:
        """Guard work for a cluster that runs already, whose workers may have come after the check."""
        if job.reads_sources or self._mark is None:
            return work
        return Guarded(versions(), self._store, self._mark, work)

    def require_alive(self, error: Exception) -> None:
        """Check that the scheduler is there, the only one that takes tasks back."""
        # To Python, a task's time-out is an error of the operating system too.
        lost = isinstance(error, CancelledError | OSError) and not isinstance(error, TimeoutError)
        if lost or self._dask.client.status != "running":
            raise OutputError(self._gone()) from error

    def _gone(self) -> str:
        place = "of this run" if self._address is None else f"run.dask.scheduler={self._address!r}"
        return f"the Dask scheduler {place} is gone; what was done is kept, and another run goes on from it"


def _shielded_from_ctrl_c(start: Callable[[], object]) -> None:
    """Start processes that Ctrl-C does not reach; on a terminal, each would print a traceback while it imports.

    Threads and processes inherit the blocked signals of the thread that starts them, so a separate thread does it.
    """
    # Starting the tracker would unblock the signal in its thread, so it must run already.
    resource_tracker.ensure_running()
    pool = ThreadPoolExecutor(1, initializer=signal.pthread_sigmask, initargs=(signal.SIG_BLOCK, {signal.SIGINT}))
    try:
        pool.submit(copy_context().run, start).result()
    finally:
        pool.shutdown(wait=False)


def _local_cluster(count: int) -> DaskTaskRunner:
    return DaskTaskRunner(
        cluster_kwargs={
            "n_workers": count,
            # A job sets the threads of its tensor operations for its whole process.
            "threads_per_worker": 1,
            "processes": True,
            "host": "127.0.0.1",
            # Two runs at a time would ask for the same port.
            "dashboard_address": "127.0.0.1:0",
            # A worker that Dask ends for its use of memory would lose the job; the project checks memory itself.
            "memory_limit": 0,
            "preload": [__name__],
        }
    )


def dask_setup(worker: object) -> None:
    """Make a worker as quiet as the command; Dask calls it when a worker of this machine starts."""
    configure_logging()
    quieten()
