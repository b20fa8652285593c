"""The threads or processes that run tasks, which end with the run whatever ends it."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from prefect.exceptions import TerminationSignal
from prefect.task_runners import ProcessPoolTaskRunner, TaskRunner, ThreadPoolTaskRunner

from fedfisher_core.settings import WorkSettings
from flows.console import configure_logging


@contextmanager
def started(run: WorkSettings, workers: int) -> Iterator[TaskRunner[Any]]:
    """Start workers, and end them with the block.

    A run that is interrupted does not wait for jobs under way: what they would have made is made by the next run.

    Args:
        run: how the work is carried out.
        workers: how many.

    Yields:
        What runs tasks.
    """
    with ExitStack() as stack:
        runner = stack.enter_context(_runner(run, workers))
        try:
            yield runner
        except (KeyboardInterrupt, TerminationSignal):
            stack.pop_all()
            for process in multiprocessing.active_children():
                process.kill()
            raise


def _runner(run: WorkSettings, workers: int) -> TaskRunner[Any]:
    if run.runner == "processes":
        return ProcessPoolTaskRunner(max_workers=workers, initializer=_start_process)
    return ThreadPoolTaskRunner(max_workers=workers)


def _start_process() -> None:
    """Make a process as quiet as the command, and end it when the command ends."""
    configure_logging()
    # Ctrl-C reaches all processes of a terminal; the command decides what becomes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="end with parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
