"""How a command ends that is told to stop."""

import io
import os
import signal
import sys
from typing import NoReturn

_LEAVE_SECONDS = 5
_AGAIN_SECONDS = 0.05
_noted: io.FileIO | None = None


class Terminated(KeyboardInterrupt):
    """SIGTERM, which stops a command as Ctrl-C does."""


def stop_on_sigterm() -> None:
    """Have SIGTERM raise `Terminated`, and end this process some seconds later whatever became of that."""
    signal.signal(signal.SIGTERM, _terminate)
    sys.unraisablehook = _raise_again
    _note_signals()


def told_to_stop() -> KeyboardInterrupt | None:
    """Say whether this process was told to stop since `stop_on_sigterm`, whoever handled the signal.

    Foreign code may catch what a handler raises and raise something else, as pydantic's does while it serialises.

    Returns:
        What the signal raises; None where there was none.
    """
    arrived = _noted.read() if _noted is not None else None
    for told, stop in ((signal.SIGTERM, Terminated()), (signal.SIGINT, KeyboardInterrupt())):
        if told in (arrived or b""):
            return stop
    return None


def leave(stop: KeyboardInterrupt) -> NoReturn:
    """Say that what is finished is kept, and end this process: Python would wait for jobs of which nothing is kept.

    Args:
        stop: decides the exit code, 143 after SIGTERM and 130 after Ctrl-C.
    """
    try:
        print("fedfisher: stopped; what was finished is kept and will not be computed again", file=sys.stderr)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    finally:
        # Whoever reads the output, as `tee`, may have ended by the same signal.
        os._exit(143 if isinstance(stop, Terminated) else 130)


def _note_signals() -> None:
    """Have Python write the number of each signal that it handles into a pipe."""
    global _noted
    if _noted is None:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        _noted = os.fdopen(reading, "rb", buffering=0)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)


def _terminate(signal_number: int, frame: object) -> NoReturn:
    # Whatever catches it on its way may go on.
    signal.signal(signal.SIGALRM, lambda signal_number, frame: leave(Terminated()))
    signal.alarm(_LEAVE_SECONDS)
    raise Terminated


def _raise_again(dropped: "sys.UnraisableHookArgs") -> None:
    """Python drops what is raised where nobody can catch it, as in a callback while modules are imported."""
    if isinstance(dropped.exc_value, (Terminated, *_prefects_own())):
        signal.signal(signal.SIGALRM, lambda signal_number, frame: signal.raise_signal(signal.SIGTERM))
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
    else:
        sys.__unraisablehook__(dropped)


def _prefects_own() -> tuple[type[BaseException], ...]:
    """What SIGTERM raises while Prefect runs a flow; a command that has not imported Prefect has no need of it."""
    exceptions = sys.modules.get("prefect.exceptions")
    return () if exceptions is None else (exceptions.TerminationSignal,)
