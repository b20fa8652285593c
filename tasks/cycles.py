"""Less work for Python's cycle collector where it finds nothing: while modules load, and when a process ends."""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
