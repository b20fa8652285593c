"""Waiting for what must happen, with a limit that only a hang reaches, however busy the machine is."""

import time
from collections.abc import Callable

HANG_SECONDS = 1500
"""Shorter than what `make test` gives one test, so that a hang is told by what did not happen."""


def wait_until(happened: Callable[[], object], what: str) -> None:
    """Wait until a function returns what is true.

    Args:
        happened: asked again and again.
        what: must happen, for the message.

    Raises:
        AssertionError: it did not.
    """
    deadline = time.monotonic() + HANG_SECONDS
    while not happened():
        assert time.monotonic() < deadline, f"not within {HANG_SECONDS} s: {what}"
        time.sleep(0.05)
