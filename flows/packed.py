"""Work as bytes, into which what carries it does not look."""

import zlib
from collections.abc import Callable
from typing import Generic, TypeVar

from distributed.protocol import pickle

R = TypeVar("R")

# The fastest makes two fifths of references to artifacts, and what is left of them is digests.
_LEVEL = 1


class Packed(Generic[R]):
    """Work that is pickled once, where it is handed over, and read where it is done.

    Dask pickles what a task is given together with its graph, and reads it back on its way. An aggregation is given a
    reference to each upload, so that to pass on those of many clients took more memory than all that came before.

    Args:
        work: of a task.
    """

    def __init__(self, work: Callable[[], R]) -> None:
        self.data = zlib.compress(pickle.dumps(work), _LEVEL)

    def __call__(self) -> R:
        """Do the work.

        Raises:
            ImportError: this machine lacks a part of what the work is made of.
            AttributeError: likewise.
        """
        # It came with a task, which Dask has read in the same way: who could send the one could send the other.
        work: Callable[[], R] = pickle.loads(zlib.decompress(self.data))
        return work()
