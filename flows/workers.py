"""The threads or processes that run tasks, which end with the run whatever ends it."""

import math
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Self, TypeVar

from prefect import Task
from prefect.exceptions import TerminationSignal
from prefect.futures import PrefectFuture
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from fedfisher_core.batches import Batch
from fedfisher_core.jobs import Job
from fedfisher_core.settings import WorkSettings
from tasks.job import Done

R = TypeVar("R")

Following = Callable[[list[Done]], Sequence[Batch]]
"""Is told what became of batches, and says which are next; none to end."""

NEAR = 0.1, 0.02, 8.0
"""`longest`, `least` and `lasting` where to be told what is next takes less than a task, which takes 0.15 s."""


class Workers:
    """What runs tasks.

    Args:
        runner: takes the tasks.
        count: how many run at a time.
    """

    longest = 8.0
    """Seconds of a group of several batches; a task of its own for each cost 0.45 s on Dask."""
    least = 0.2
    """Seconds of a group that are not worth sharing out."""
    lasting = 0.0
    """Seconds that a task may go on with groups that it is given later."""
    patience = math.inf
    """Seconds until a task that still runs is started once more, on another worker."""

    def __init__(self, runner: TaskRunner[Any], count: int) -> None:
        self._runner = runner
        self._count = count

    def __enter__(self) -> Self:
        self._runner.__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._runner.__exit__(*reason)

    @property
    def count(self) -> int:
        """How many tasks run at a time."""
        return self._count

    @property
    def places(self) -> int:
        """How many tasks are handed over at once."""
        return self._count

    def submit(
        self,
        task: Task[..., Any],
        parameters: dict[str, Any],
        job: Job[Any],
        before: PrefectFuture[Any] | None = None,
    ) -> PrefectFuture[Any]:
        """Hand a task over.

        Args:
            task: any.
            parameters: of its function.
            job: the first that it computes.
            before: another task for the same, which has failed or is late: where it ran this one does not, if there is
                anything else.

        Returns:
            Its result, when it is there.
        """
        return self._runner.submit(task, parameters=parameters)

    def forget(self, future: PrefectFuture[Any]) -> None:
        """Let go of what is held for a task whose result was read.

        Args:
            future: of the task.
        """

    def guarded(self, work: Callable[[], R], job: Job[Any]) -> Callable[[], R]:
        """Make work ready for workers, and have it refused where it could come out otherwise than here.

        Args:
            work: of a task.
            job: the first that it computes.

        Returns:
            The work, with the check before it where workers may be of others than this run.
        """
        return work

    def following(self, answer: Following) -> Following:
        """Bring to a task what tells it which batches are next.

        Args:
            answer: is called in this process.

        Returns:
            The same, to be called where the task runs.
        """
        return answer

    def is_spread(self, job: Job[Any]) -> bool:
        """Say whether several machines could compute a job, of which one may fail at what the others can do.

        Args:
            job: any.
        """
        return False

    def is_stranded(self, future: PrefectFuture[Any]) -> bool:
        """Say whether a task that was to run elsewhere than another has nowhere to run any more.

        Args:
            future: of the task.
        """
        return False

    def has_ended(self, result: object) -> bool:
        """Say whether a task has ended with its workers, for its own doing or that of another which waited there.

        Args:
            result: of a task, or why there is none.
        """
        return False

    def require_there(self, error: Exception) -> None:
        """Check that tasks still have somewhere to run.

        Args:
            error: why there is no result of one.

        Raises:
            InputError: they have not.
        """


class Threads(Workers):
    """Threads of this process: a task is given one small group after another."""

    longest, least, lasting = NEAR


@contextmanager
def started(run: WorkSettings) -> Iterator[Workers]:
    """Start workers, and end them with the block.

    A run that is interrupted does not wait for jobs under way: what they would have made is made by the next run.

    Args:
        run: how the work is carried out.

    Yields:
        What runs tasks.
    """
    with ExitStack() as stack:
        workers = stack.enter_context(_workers(run))
        try:
            yield workers
        except (KeyboardInterrupt, TerminationSignal):
            stack.pop_all()
            for process in multiprocessing.active_children():
                process.kill()
            raise


def _workers(run: WorkSettings) -> Workers:
    count = run.workers or len(os.sched_getaffinity(0))
    match run.runner:
        case "dask":
            from flows.dask_workers import DaskWorkers

            return DaskWorkers(run, count)
        case "processes":
            from flows.processes import Processes

            return Processes(count)
        case "threads":
            return Threads(ThreadPoolTaskRunner(max_workers=count), count)
