"""Ending a process together with the process that started it."""

import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from threading import Thread

# Read when the process begins: if the parent ends, the system gives the process another parent.
_PARENT = os.getppid()
_LOOK_SECONDS = 1
_STOP_SECONDS = 60


def end_with_input() -> None:
    """End this process when its standard input ends, a pipe that only its starter can write to."""
    Thread(target=_end_after, args=(sys.stdin.read,), name="end with input", daemon=True).start()


def end_with_parent() -> None:
    """End this process when its parent ends, without any help from the parent."""
    Thread(target=_end_after, args=(partial(_wait_for, _PARENT),), name="end with parent", daemon=True).start()


def _wait_for(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)


def _end_after(wait: Callable[[], object]) -> None:
    """Send this process SIGTERM when a wait ends, and end it a minute later in any case."""
    wait()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_STOP_SECONDS)
    os._exit(1)
