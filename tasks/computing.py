"""How a task computes its jobs."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedfisher_core.engine.failures import Failure
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.malloc import trim_heap_after_job
from fedfisher_core.engine.performing import perform
from fedfisher_core.engine.store import Store
from tasks.options import computing


class JobsFailedError(RuntimeError):
    """Some jobs of a task failed; the results of the others are kept.

    Args:
        failures: by name of the job, as text, since not every error can be sent to another process.
    """

    def __init__(self, failures: Mapping[str, Failure]) -> None:
        super().__init__(failures)
        self.failures = failures

    def __str__(self) -> str:
        return "; ".join(f"{name}: {failure.reason}" for name, failure in self.failures.items())


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
