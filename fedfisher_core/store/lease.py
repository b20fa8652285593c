"""What a run holds while it rests on the artifacts of a store, so that no other run sheds them."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from fedfisher_core.locks import share, take, try_alone, wait

_RUNS = "runs.lock"
_SHEDDING = "shedding.lock"


class Lease:
    """A run's hold on a store; all runs have one, each of its own.

    Args:
        file: holds the lock that all runs share.
        shedding: of the one run that asks whether it is the only one.
    """

    def __init__(self, file: FileIO, shedding: Path) -> None:
        self._file = file
        self._shedding = shedding

    @contextmanager
    def only(self) -> Iterator[bool]:
        """Find out whether no other run rests on the store; if so, none begins until the block ends.

        Yields:
            Whether it is the only run.
        """
        shedding = take(self._shedding)
        if shedding is None:
            # Another run is there, and asks.
            yield False
            return
        with shedding:
            only = try_alone(self._file)
            try:
                yield only
            finally:
                share(self._file)


@contextmanager
def leased(folder: Path, *, timeout: float) -> Iterator[Lease]:
    """Hold a store until the block ends.

    Args:
        folder: of its locks.
        timeout: seconds to wait for a run that sheds.

    Yields:
        The lease.

    Raises:
        LockedError: another run sheds for longer.
        InputError: the store can't be locked.
    """
    with wait(folder / _RUNS, timeout, shared=True) as file:
        yield Lease(file, folder / _SHEDDING)
