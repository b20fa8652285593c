"""How a task computes its jobs."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedfisher_core.engine.errors import JobError
from fedfisher_core.engine.failures import Failure, JobsFailedError
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.malloc import trim_heap_after_job
from fedfisher_core.engine.performing import perform
from fedfisher_core.engine.store import Store
from tasks.common import tensor_resources

_CHANGED = (
    "its code, or a file that it reads, is another one here than in the command; allowed: the same packages and files "
    "on all machines, and no change of them during a run"
)


def compute(
    groups: Sequence[Sequence[Job[Any]]], store: Store, *, keys: Mapping[str, str], share_gpu: bool, seconds: float
) -> None:
    """Compute and store groups of jobs, as workers get them, one group after another.

    Args:
        keys: of the results, by name of the job, as the command knows them.
        seconds: the task's time-out.

    Raises:
        JobsFailedError: some jobs failed; all others were tried.
    """
    failed: dict[str, Exception] = {}
    with tensor_resources(groups[0][0].numerics, share_gpu=share_gpu, seconds=seconds):
        for group in groups:
            # A result under another key would be found by no one.
            changed = [job.name for job in group if job.key != keys[job.name]]
            failed |= {name: JobError(_CHANGED, "") for name in changed}
            try:
                failed |= perform([job for job in group if job.name not in changed], store)
            finally:
                trim_heap_after_job()
    if failed:
        raise JobsFailedError({name: Failure.of(name, error) for name, error in failed.items()})
