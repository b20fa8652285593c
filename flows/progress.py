"""How far a run is: a bar or lines on standard error, and an artifact in Prefect's UI."""

import sys
import threading
import time
from types import TracebackType
from typing import Self, TextIO, cast
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from tqdm import tqdm

_SECONDS = 60.0


class Lines:
    """Says once a minute how many jobs are finished, where no terminal shows a bar.

    Args:
        name: of the experiment.
        total: number of jobs.
        done: how many of them were there before.
        file: where to.
        seconds: between two lines.
    """

    def __init__(self, *, name: str, total: int, done: int, file: TextIO, seconds: float = _SECONDS) -> None:
        self._name = name
        self._total = total
        self._done = done
        self._file = file
        self._seconds = seconds
        self._closed = threading.Event()
        threading.Thread(target=self._write, name="progress", daemon=True).start()

    def update(self, more: int) -> None:
        """Count finished jobs."""
        self._done += more

    def close(self) -> None:
        """Say no more."""
        self._closed.set()

    def _write(self) -> None:
        begun = time.monotonic()
        while not self._closed.wait(self._seconds):
            minutes = (time.monotonic() - begun) / 60
            print(f"{self._name}: {self._done} of {self._total} jobs, {minutes:.0f} min", file=self._file, flush=True)


class Progress:
    """Counts finished jobs.

    Args:
        name: of the experiment.
        total: number of jobs.
        done: how many of them were there before.
    """

    def __init__(self, *, name: str, total: int, done: int) -> None:
        self._artifact = cast(
            UUID, create_progress_artifact(progress=100 * done / total, description=f"{name}: {total} jobs")
        )
        self._shown: tqdm | Lines = (
            tqdm(total=total, initial=done, desc=name, unit="job", file=sys.stderr)
            if sys.stderr.isatty()
            else Lines(name=name, total=total, done=done, file=sys.stderr)
        )
        self._total = total
        self._done = done

    def advance_to(self, done: int) -> None:
        """Say how many jobs are finished; the UI is told at every whole twentieth."""
        shown, twentieths = (20 * count // self._total for count in (self._done, done))
        self._shown.update(done - self._done)
        self._done = done
        if twentieths > shown:
            update_progress_artifact(self._artifact, progress=100 * done / self._total)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shown.close()
