"""What all tasks have in common: no result cache, retries of what may pass, and a slot on the GPU."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import torch
from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas import TaskRun
from prefect.context import TaskRunContext
from prefect.states import State

from fedfisher_core.errors import DivergedClientError, InputError, SomeDivergedError
from fedfisher_core.heap import keep_freed
from fedfisher_core.jobs import Numerics
from fedfisher_core.reproducible import reproducible_gpu
from fedfisher_core.settings import WorkSettings
from tasks.gpu import gpu_slot

P = ParamSpec("P")
R = TypeVar("R")

_RETRY_DELAY_SECONDS = 2
# A task that waited longer for a GPU would be stopped before it is done.
_WAITING_SHARE = 0.5


class _KnownLimit(logging.Filter):
    """Drops a warning that every task would repeat: a time-out in a thread waits for the operation under way.

    The operations of these tasks are single tensor products, which end soon enough.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        return "Timeouts in worker threads cannot interrupt" not in record.getMessage()


logging.getLogger("prefect.task_runs").addFilter(_KnownLimit())


def step(*, run_name: str) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Make a Prefect task of a function.

    Args:
        run_name: template of the run's name over the function's parameters.

    Returns:
        A decorator. Prefect's own cache is off: the store decides what is computed, since it looks at the files.
    """

    def decorate(function: Callable[P, R]) -> Task[P, R]:
        return task(
            task_run_name=run_name,
            cache_policy=NO_CACHE,
            persist_result=False,
            retry_delay_seconds=_RETRY_DELAY_SECONDS,
            retry_condition_fn=_may_pass,
        )(function)

    return decorate


def limited(chosen: Task[P, R], run: WorkSettings) -> Task[P, R]:
    """Give a task the retries and the time-out of an experiment.

    Args:
        chosen: the task.
        run: the settings.

    Returns:
        The task with these limits.
    """
    return chosen.with_options(retries=run.retries, timeout_seconds=run.timeout_seconds)


@contextmanager
def computing(numerics: Numerics, *, share_gpu: bool) -> Iterator[None]:
    """Set the threads and memory of a task's tensors and, on a GPU, wait for its slot and have it round reproducibly.

    Args:
        numerics: where it computes.
        share_gpu: whether others that say so too may compute on the same GPU.

    Raises:
        LockedError: another process holds the GPU for half of the time that the task has.
    """
    torch.set_num_threads(numerics.threads)
    keep_freed()
    if numerics.device == "cpu":
        yield
    else:
        timeout = _WAITING_SHARE * _seconds_of_task()
        with gpu_slot(_current_gpu(), shared=share_gpu, timeout=timeout), reproducible_gpu():
            yield


def _current_gpu() -> str:
    """Name the GPU that this thread computes on, which other processes may number differently."""
    return str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)


def _seconds_of_task() -> float:
    context = TaskRunContext.get()
    seconds = context.task.timeout_seconds if context is not None else None
    return WorkSettings().timeout_seconds if seconds is None else seconds


async def _may_pass(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """Try again unless the same input must fail in the same way."""
    result = await state.aresult(raise_on_failure=False)
    return not isinstance(result, InputError | DivergedClientError | SomeDivergedError)
