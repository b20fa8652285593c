"""Locks that are waited for, and not in silence."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fedfisher_core.engine.locks import LockedError, held

log = logging.getLogger("fedfisher")

_SILENT_SECONDS = 30


@contextmanager
def patiently_held(path: Path, *, purpose: str, timeout: float, shared: bool = False) -> Iterator[None]:
    """Hold a lock; whoever waits long for it says for whom.

    Args:
        path: the file; see `held`.
        purpose: what it is held for.
        timeout: seconds to wait for others.
        shared: others may hold it as well, if they share it too.

    Raises:
        LockedError: others hold it still when the time is over.
    """
    silent = min(_SILENT_SECONDS, timeout)
    with ExitStack() as stack:
        try:
            stack.enter_context(held(path, purpose=purpose, timeout=silent, shared=shared))
        except LockedError as error:
            if silent == timeout:
                raise
            log.warning("%s, and for at most %g s more", error, timeout - silent)
            stack.enter_context(held(path, purpose=purpose, timeout=timeout - silent, shared=shared))
        yield
