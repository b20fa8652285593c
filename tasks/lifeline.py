"""The end of a process with whoever has started it, however that ends."""

import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from threading import Thread

# Of when the process began: later it may be another, which takes the place of a parent that is gone.
_PARENT = os.getppid()
_LOOK_SECONDS = 1
_STOP_SECONDS = 60


def end_with_input() -> None:
    """End this process when its standard input does, a pipe that only its starter can write to."""
    Thread(target=_end_after, args=(sys.stdin.read,), name="end with input", daemon=True).start()


def end_with_parent() -> None:
    """End this process when the one that has started it does, which need not know of that."""
    Thread(target=_end_after, args=(partial(_wait_for, _PARENT),), name="end with parent", daemon=True).start()


def _wait_for(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)


def _end_after(wait: Callable[[], object]) -> None:
    """Send this process SIGTERM, which ends it at once unless it has other ideas; it is gone a minute later anyway."""
    wait()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_STOP_SECONDS)
    os._exit(1)
