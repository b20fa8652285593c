"""Locks that are waited for, and not in silence, and one task at a time on a GPU, or all that share it."""

import logging
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

from fedfisher_core.engine.errors import LockedError
from fedfisher_core.engine.locks import held

log = logging.getLogger("fedfisher")

_SILENT_SECONDS = 30

# A file lock goes to the first that asks after a release, which in one process is often the same thread again.
_turn = threading.Lock()


@contextmanager
def patiently_held(path: Path, *, purpose: str, timeout: float, shared: bool = False) -> Iterator[None]:
    """Hold a lock; a process that waits long for it logs who holds it.

    Args:
        path: the file; see `held`.
        timeout: seconds to wait for others.
        shared: others may hold it as well, if they share it too.

    Raises:
        LockedError: others hold it still when the time is over.
    """
    silent = min(_SILENT_SECONDS, timeout)
    with ExitStack() as stack:
        try:
            stack.enter_context(held(path, purpose=purpose, timeout=silent, shared=shared))
        except LockedError as error:
            if silent == timeout:
                raise
            log.warning("%s, and for at most %g s more", error, timeout - silent)
            stack.enter_context(held(path, purpose=purpose, timeout=timeout - silent, shared=shared))
        yield


@contextmanager
def gpu_slot(gpu: str, *, shared: bool, timeout: float) -> Iterator[None]:
    """Wait until other tasks of this user leave a GPU, and hold it until the block or this process ends.

    Args:
        timeout: seconds to wait for another process; then a `LockedError` names it.
    """
    path = Path(tempfile.gettempdir()) / f"fedfisher-{os.getuid()}" / f"gpu-{gpu}.lock"
    turn = nullcontext() if shared else _turn
    with turn, patiently_held(path, purpose="computes on the GPU", timeout=timeout, shared=shared):
        yield
