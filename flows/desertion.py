"""A warning when all workers of a cluster have left: their tasks wait, and nothing else tells of it."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Client

_SECONDS = 20.0
log = logging.getLogger("fedfisher")


@contextmanager
def warned_of(client: "Client", scheduler: str) -> Iterator[None]:
    """Warn, until the block ends, whenever a scheduler has been without workers for a while.

    Args:
        client: of the scheduler.
        scheduler: its address.
    """
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=(client, scheduler, over), name="watch workers", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=_SECONDS)


def _watch(client: "Client", scheduler: str, over: threading.Event) -> None:
    looks_without = 0
    while not over.wait(_SECONDS):
        try:
            looks_without = 0 if client.nthreads() else looks_without + 1
        except (OSError, RuntimeError, ValueError) as error:
            # A scheduler that is gone is told of where its answers are waited for.
            log.debug("workers of %s can't be counted: %s", scheduler, error)
            continue
        # One look alone may fall between the death of the last and the start of the next.
        if looks_without == 2:
            log.warning(
                "run.dask.scheduler=%r has no workers any more; the run waits for some: dask worker %s --nthreads 1",
                scheduler,
                scheduler,
            )
