"""One task at a time on a GPU, whichever run, folder or process it belongs to."""

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.waiting import patiently_held

# A file lock lets whoever asks first after a release have it, which in one process is often the same thread again.
_turn = threading.Lock()


@contextmanager
def gpu_slot(gpu: str, *, timeout: float) -> Iterator[None]:
    """Wait until no other task of this user computes on a GPU, and hold it; it is free again when this process ends.

    Args:
        gpu: its name.
        timeout: seconds to wait for another process.

    Raises:
        LockedError: another process holds it still; the message names it.
    """
    path = Path(tempfile.gettempdir()) / f"fedfisher-{os.getuid()}" / f"gpu-{gpu}.lock"
    with _turn, patiently_held(path, purpose="computes on the GPU", timeout=timeout):
        yield
