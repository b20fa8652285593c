"""How a process ends when it is told to stop, or with the process that started it."""

import io
import os
import signal
import sys
import time
from collections.abc import Callable
from threading import Thread
from typing import NoReturn

_LEAVE_SECONDS = 5
_AGAIN_SECONDS = 0.05
_LOOK_SECONDS = 1
_STOP_SECONDS = 60
# Read when the process begins: if the parent ends, the system gives the process another parent.
_PARENT = os.getppid()
_noted: io.FileIO | None = None
_arrived = b""


class Terminated(KeyboardInterrupt):
    """SIGTERM, which stops a command as Ctrl-C does."""


def stop_on_sigterm() -> None:
    """Have SIGTERM raise `Terminated`, and end this process some seconds later in any case."""
    signal.signal(signal.SIGTERM, _terminate)
    sys.unraisablehook = _raise_again
    _note_signals()


def told_to_stop() -> KeyboardInterrupt | None:
    """Return what a signal since `stop_on_sigterm` raises; None where there was no signal.

    Foreign code may catch what a handler raises and raise something else, as pydantic does while it serialises.
    """
    global _arrived
    if _noted is not None:
        _arrived += _noted.read() or b""
    for told, stop in ((signal.SIGTERM, Terminated()), (signal.SIGINT, KeyboardInterrupt())):
        if told in _arrived:
            return stop
    return None


def code_of_stop(stop: KeyboardInterrupt) -> int:
    """Return the exit code of a stopped command: 143 after SIGTERM and 130 after Ctrl-C."""
    return 143 if isinstance(stop, Terminated) else 130


def leave(stop: KeyboardInterrupt) -> NoReturn:
    """Report that finished results are kept, and end this process at once: Python would wait for unfinished jobs."""
    try:
        print("fedfisher: stopped; what was finished is kept and will not be computed again", file=sys.stderr)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    finally:
        # The reader of the output, such as `tee`, may have ended by the same signal.
        os._exit(code_of_stop(stop))


def end_with_input() -> None:
    """End this process when its standard input ends, a pipe that only its starter can write to."""
    end_after(sys.stdin.read)


def end_with_parent() -> None:
    """End this process when its parent ends, without any help from the parent."""
    end_after(_wait_for_parent)


def end_after(wait: Callable[[], object]) -> None:
    """Send this process SIGTERM when a wait ends, and end it a minute later in any case."""

    def end() -> None:
        wait()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_STOP_SECONDS)
        os._exit(1)

    Thread(target=end, name="end this process", daemon=True).start()


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
    # Other code may catch the exception and go on, so an alarm ends the process later.
    signal.signal(signal.SIGALRM, lambda signal_number, frame: leave(Terminated()))
    signal.alarm(_LEAVE_SECONDS)
    raise Terminated


def _raise_again(dropped: "sys.UnraisableHookArgs") -> None:
    """Raise a stop again that Python drops where no code can catch it, as in a callback while modules are imported."""
    if isinstance(dropped.exc_value, (Terminated, *_prefects_own())):
        signal.signal(signal.SIGALRM, lambda signal_number, frame: signal.raise_signal(signal.SIGTERM))
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
    else:
        sys.__unraisablehook__(dropped)


def _prefects_own() -> tuple[type[BaseException], ...]:
    """Return what SIGTERM raises while Prefect runs a flow; nothing in a command that has not imported Prefect."""
    exceptions = sys.modules.get("prefect.exceptions")
    return () if exceptions is None else (exceptions.TerminationSignal,)


def _wait_for_parent() -> None:
    while os.getppid() == _PARENT:
        time.sleep(_LOOK_SECONDS)
