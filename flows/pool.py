"""One pool for the tasks of all cells: whatever is ready runs, and its result decides what is ready next."""

import queue
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from prefect import Task
from prefect.client.orchestration import get_client
from prefect.futures import PrefectFuture
from prefect.task_runners import ProcessPoolTaskRunner, TaskRunner, ThreadPoolTaskRunner

from fedfisher_core.steps.context import WorkContext
from flows.progress import Progress
from tasks.options import GPU_LIMIT, limited

R = TypeVar("R")


def task_runner(context: WorkContext) -> TaskRunner[Any]:
    """Choose how tasks run next to each other.

    Args:
        context: the experiment.

    Returns:
        Threads or processes, as many as the settings say.
    """
    if context.run.runner == "processes":
        return ProcessPoolTaskRunner(max_workers=context.workers)
    return ThreadPoolTaskRunner(max_workers=context.workers)


def allow_gpus() -> None:
    """Tell the Prefect server how many tasks may compute on GPUs at a time: one each."""
    if torch.cuda.is_available():
        with get_client(sync_client=True) as client:
            client.upsert_global_concurrency_limit_by_name(GPU_LIMIT, limit=torch.cuda.device_count())


class Pool:
    """Runs tasks and calls back with their results, one at a time, in the flow's own thread.

    Tasks get artifacts, never futures: a task that waited for another would hold a worker that the other may need.

    Args:
        context: the experiment, whose limits apply to all tasks.
        runner: started.
        progress: is told of every finished task.
    """

    def __init__(self, context: WorkContext, runner: TaskRunner[Any], progress: Progress) -> None:
        self._context = context
        self._runner = runner
        self._progress = progress
        self._finished: queue.SimpleQueue[PrefectFuture[Any]] = queue.SimpleQueue()
        self._callbacks: dict[Any, tuple[Callable[[Any], None], Callable[[Exception], None]]] = {}

    def submit(
        self,
        task: Task[..., R],
        *,
        then: Callable[[R], None],
        otherwise: Callable[[Exception], None] | None = None,
        **parameters: Any,
    ) -> None:
        """Run a task.

        Args:
            task: the task.
            then: called with its result.
            otherwise: called with its error after all retries; without it the error ends the flow.
            **parameters: of the task; the experiment's context is added.
        """
        future = self._runner.submit(limited(task, self._context), parameters={"context": self._context, **parameters})
        self._callbacks[future.task_run_id] = (then, otherwise or _raise)
        future.add_done_callback(self._finished.put)

    def run(self) -> None:
        """Wait until no task is left, those that callbacks submit included.

        Raises:
            Exception: the error of the first task that failed without an `otherwise`.
        """
        while self._callbacks:
            future = self._finished.get()
            then, otherwise = self._callbacks.pop(future.task_run_id)
            result = future.result(raise_on_failure=False)
            self._progress.advance()
            if isinstance(result, Exception):
                otherwise(result)
            else:
                then(result)


def _raise(error: Exception) -> None:
    raise error
