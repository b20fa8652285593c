"""Progress of a run: a bar or lines on standard error, and an artifact in Prefect's UI."""

import sys
import threading
import time
from typing import TextIO, cast
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from tqdm import tqdm

_SECONDS = 60.0


class Lines:
    """Prints at intervals how many jobs are finished and what time is left, where no terminal shows a bar."""

    def __init__(self, *, name: str, total: int, file: TextIO, seconds: float = _SECONDS) -> None:
        self._name = name
        self._total = total
        self._done = 0
        self._file = file
        self._seconds = seconds
        self._closed = threading.Event()
        threading.Thread(target=self._write, name="progress", daemon=True).start()

    def update(self, more: int) -> None:
        """Count more finished jobs."""
        self._done += more

    def close(self) -> None:
        """Stop printing."""
        self._closed.set()

    def _write(self) -> None:
        begun = time.monotonic()
        while not self._closed.wait(self._seconds):
            minutes, done = (time.monotonic() - begun) / 60, self._done
            left = f", about {(self._total - done) * minutes / done:.0f} min left" if done else ""
            line = f"{self._name}: {done} of {self._total} jobs, {minutes:.0f} min{left}"
            print(line, file=self._file, flush=True)


class Progress:
    """Counts finished jobs of an experiment."""

    def __init__(self, *, name: str, total: int) -> None:
        self._artifact = cast(UUID, create_progress_artifact(progress=0.0, description=f"{name}: {total} jobs"))
        self._shown: tqdm | Lines = (
            tqdm(total=total, desc=name, unit="job", file=sys.stderr)
            if sys.stderr.isatty()
            else Lines(name=name, total=total, file=sys.stderr)
        )
        self._total = total
        self._done = 0

    def advance_to(self, done: int) -> None:
        """Show how many jobs are finished; Prefect's UI is updated at every twentieth of all jobs."""
        shown, twentieths = (20 * count // self._total for count in (self._done, done))
        self._shown.update(done - self._done)
        self._done = done
        if twentieths > shown:
            update_progress_artifact(self._artifact, progress=100 * done / self._total)

    def close(self) -> None:
        """End the bar or the lines."""
        self._shown.close()
