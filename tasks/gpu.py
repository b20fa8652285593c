"""One task at a time on a GPU, or all that share it, across runs, folders and processes."""

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from tasks.waiting import patiently_held

# A file lock goes to the first that asks after a release, which in one process is often the same thread again.
_turn = threading.Lock()


@contextmanager
def gpu_slot(gpu: str, *, shared: bool, timeout: float) -> Iterator[None]:
    """Wait until other tasks of this user leave a GPU, and hold it until the block or this process ends.

    Args:
        shared: whether other tasks that share it may compute there as well.
        timeout: seconds to wait for another process; then a `LockedError` names it.
    """
    path = Path(tempfile.gettempdir()) / f"fedfisher-{os.getuid()}" / f"gpu-{gpu}.lock"
    turn = nullcontext() if shared else _turn
    with turn, patiently_held(path, purpose="computes on the GPU", timeout=timeout, shared=shared):
        yield
