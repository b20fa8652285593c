"""Less work for Python's collector of cycles in a process that imports much."""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Collect no cycles until the block ends, and never what exists by then: modules stay, and are many.

    A cycle that exists by then stays too, with all that its frames hold, so the block should do little but import.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def exit_without_collecting() -> None:
    """Have this process end without a search for cycles, which takes Python over a second after many imports."""
    atexit.register(gc.freeze)
