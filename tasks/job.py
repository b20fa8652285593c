"""The task that runs any jobs."""

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedfisher_core.batches import Batch, compute
from fedfisher_core.errors import DivergedClientError, InputError, JobError, SomeDivergedError
from fedfisher_core.failures import described
from fedfisher_core.heap import give_back_after_job
from fedfisher_core.store import Artifact, Store
from tasks.options import computing, step


@dataclass(frozen=True)
class Done:
    """What became of a batch.

    Args:
        artifacts: one a job, then those of followers; None where it failed among others.
        seconds: that it took, without the wait for a GPU.
    """

    artifacts: list[Artifact] | None
    seconds: float


@step(run_name="{title}")
def run_jobs(title: str, work: Callable[[], list[Done]]) -> list[Done]:
    """Compute and store what batches of jobs make.

    Args:
        title: what the UI calls it.
        work: the computation; a callable, which Prefect does not look into as it would into data classes.

    Returns:
        What became of each batch.
    """
    return work()


def do_alone(batch: Batch, store: Store, *, share_gpu: bool = False) -> list[Done]:
    """Compute and store what one batch makes.

    Args:
        batch: from a walk.
        store: keeps the results.
        share_gpu: whether tasks that say so too may compute on the same GPU meanwhile.

    Returns:
        One entry, with its artifacts.

    Raises:
        InputError: as the job says it.
        DivergedClientError: as the job says it.
        SomeDivergedError: the clients of some of its jobs diverged.
        JobError: the computation failed in a way that no setting and no data explains.
    """
    with computing(batch.jobs[0].numerics, share_gpu=share_gpu):
        begun = time.perf_counter()
        try:
            return [Done(compute(batch, store), time.perf_counter() - begun)]
        except (InputError, DivergedClientError, SomeDivergedError) as error:
            failure: Exception = error
        except Exception as error:  # noqa: BLE001 - it is raised below, as text.
            failure = JobError(described(error), traceback.format_exc())
        finally:
            give_back_after_job()
    # What led to it may not be fit to be sent from one process to another.
    failure.__cause__ = failure.__context__ = None
    raise failure


def do_each(batches: Sequence[Batch], store: Store, *, share_gpu: bool = False) -> list[Done]:
    """Compute and store what several batches make, one after another.

    Args:
        batches: from one walk.
        store: keeps the results.
        share_gpu: as for `do_alone`.

    Returns:
        An entry for each batch. Whatever keeps one from its artifacts, the others go on.
    """
    return [done for batch in batches for done in _tried(batch, store, share_gpu)]


def do_on(
    batches: Sequence[Batch],
    store: Store,
    following: Callable[[list[Done]], Sequence[Batch]],
    *,
    share_gpu: bool = False,
) -> list[Done]:
    """Compute and store what batches make, and then what further ones make.

    Args:
        batches: from one walk; at least one.
        store: keeps the results.
        following: is told what became of batches, and says which are next; none to end.
        share_gpu: as for `do_alone`.

    Returns:
        Nothing more: all was told.
    """
    while batches:
        batches = following(do_each(batches, store, share_gpu=share_gpu))
    return []


def _tried(batch: Batch, store: Store, share_gpu: bool) -> list[Done]:
    try:
        return do_alone(batch, store, share_gpu=share_gpu)
    except (InputError, DivergedClientError, SomeDivergedError, JobError):
        # It is tried again in a task of its own, whose error is the one that counts.
        return [Done(None, 0.0)]
