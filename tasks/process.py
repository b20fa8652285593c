"""How a process ends, with the process that started it, and less work for Python's cycle collector."""

import atexit
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


@contextmanager
def loading() -> Iterator[None]:
    """Collect no cycles until the block ends, and never what exists by then: modules stay, and are many.

    A cycle that exists by then stays too, with all that its frames hold, so the block should do little but import.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def spare_the_end() -> None:
    """Have this process end without a search for cycles, which takes Python over a second after many imports."""
    atexit.register(gc.freeze)
