"""Progress of long work."""

import logging
import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")
_log = logging.getLogger("fedfisher.progress")


def track(steps: Sequence[T], *, what: str) -> Iterator[T]:
    """Yield the steps of long work, with a bar in a terminal and a line of the log at every tenth."""
    bar = tqdm(steps, unit=what, leave=False, file=sys.stderr, disable=not sys.stderr.isatty())
    for done, one in enumerate(bar, start=1):
        yield one
        if 10 * done // len(steps) > 10 * (done - 1) // len(steps):
            _log.info("%s %d of %d", what, done, len(steps))
