"""How a task computes its jobs."""

from collections.abc import Sequence
from typing import Any

from fedfisher_core.engine.failures import Failure, JobsFailedError
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.malloc import trim_heap_after_job
from fedfisher_core.engine.performing import perform
from fedfisher_core.engine.store import Store
from tasks.options import computing


def compute(groups: Sequence[Sequence[Job[Any]]], store: Store, *, share_gpu: bool = False) -> None:
    """Compute and store groups of jobs, as workers get them, one group after another.

    Raises:
        JobsFailedError: some jobs failed; all others were tried.
    """
    failed: dict[str, Exception] = {}
    with computing(groups[0][0].numerics, share_gpu=share_gpu):
        for group in groups:
            try:
                failed |= perform(group, store)
            finally:
                trim_heap_after_job()
    if failed:
        raise JobsFailedError({name: Failure.of(name, error) for name, error in failed.items()})
