"""What all tasks have in common: no result cache, retries where they may help, and a slot on the GPU."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import torch
from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas import TaskRun
from prefect.states import State

from fedfisher_core.engine.arithmetic import reproducible_gpu
from fedfisher_core.engine.costs import at_work
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.job import Numerics
from fedfisher_core.engine.malloc import keep_freed_memory
from fedfisher_core.settings import WorkSettings
from tasks.waiting import gpu_slot

log = logging.getLogger("fedfisher")

P = ParamSpec("P")
R = TypeVar("R")

_RETRY_DELAY_SECONDS = 2
# A task that waited longer for a GPU would reach its time-out before it is done.
_WAITING_SHARE = 0.5


def _is_no_known_limit(record: logging.LogRecord) -> bool:
    """Drop a warning that every task would repeat: a time-out in a thread waits for the running operation.

    The operations of these tasks are single tensor products, which end soon enough.
    """
    return "Timeouts in worker threads cannot interrupt" not in record.getMessage()


logging.getLogger("prefect.task_runs").addFilter(_is_no_known_limit)


def step(*, run_name: str) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Make a Prefect task of a function, without Prefect's cache: the store knows what is computed.

    Args:
        run_name: template of the run's name over the function's parameters.
    """
    return task(
        task_run_name=run_name,
        cache_policy=NO_CACHE,
        persist_result=False,
        retry_delay_seconds=_RETRY_DELAY_SECONDS,
        retry_condition_fn=_may_pass,
    )


def limited(chosen: Task[P, R], run: WorkSettings) -> Task[P, R]:
    """Give a task the retries and the time-out of an experiment."""
    return chosen.with_options(retries=run.retries, timeout_seconds=run.timeout_seconds)


@contextmanager
def tensor_resources(numerics: Numerics, *, share_gpu: bool, seconds: float) -> Iterator[None]:
    """Set threads and memory for a task's tensors; on a GPU, hold a slot and have it round reproducibly.

    Args:
        share_gpu: whether other tasks that allow it too may compute on the same GPU.
        seconds: the task's time-out.

    Raises:
        LockedError: another process holds the GPU for half of the task's time-out.
    """
    torch.set_num_threads(numerics.threads)
    keep_freed_memory()
    if numerics.device == "cpu":
        with at_work():
            yield
    else:
        timeout = _WAITING_SHARE * seconds
        with gpu_slot(_current_gpu(), shared=share_gpu, timeout=timeout), reproducible_gpu():
            yield


def _current_gpu() -> str:
    """Name the GPU that this thread computes on; other processes may number it differently."""
    return str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)


async def _may_pass(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """Retry unless the same input must fail in the same way; say so, as a retry that succeeds leaves no other trace."""
    result = await state.aresult(raise_on_failure=False)
    failures = getattr(result, "failures", {}).values()
    may = not isinstance(result, InputError) and not (failures and all(one.by_user for one in failures))
    if may and run.run_count <= task.retries:
        log.warning("%s failed and is tried again: %s", run.name, " ".join(str(result).split()))
    return may
