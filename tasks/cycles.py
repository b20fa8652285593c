"""Python's collection of cycles, spared where it finds nothing: while modules are loaded, and when a process ends."""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Collect nothing until the block ends, nor what is there by then: modules stay, and are many.

    So does whatever only a cycle keeps by then, and what its frames hold: the block should do little but import.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def spare_the_end() -> None:
    """Have this process end without looking for cycles in all that it has loaded, which takes Python over a second."""
    atexit.register(gc.freeze)
