"""Who computes on a GPU: one task at a time, or all that are ready to share it, of whichever run, folder or process."""

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from tasks.waiting import patiently_held

# A file lock lets whoever asks first after a release have it, which in one process is often the same thread again.
_turn = threading.Lock()


@contextmanager
def gpu_slot(gpu: str, *, shared: bool, timeout: float) -> Iterator[None]:
    """Wait until other tasks of this user leave a GPU, and hold it; it is free again when this process ends.

    Args:
        gpu: its name.
        shared: others that share it may compute there as well.
        timeout: seconds to wait for another process.

    Raises:
        LockedError: another process holds it still; the message names it.
    """
    path = Path(tempfile.gettempdir()) / f"fedfisher-{os.getuid()}" / f"gpu-{gpu}.lock"
    turn = nullcontext() if shared else _turn
    with turn, patiently_held(path, purpose="computes on the GPU", timeout=timeout, shared=shared):
        yield
