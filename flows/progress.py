"""How far a run is: a bar in the terminal and an artifact in Prefect's UI."""

import sys
from types import TracebackType
from typing import Self, cast
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from tqdm import tqdm


class Progress:
    """Counts finished jobs.

    Args:
        name: of the experiment.
        total: number of jobs.
        done: how many of them were there before.
    """

    def __init__(self, *, name: str, total: int, done: int) -> None:
        disable = not sys.stderr.isatty()
        self._bar = tqdm(total=total, initial=done, desc=name, unit="job", file=sys.stderr, disable=disable)
        self._artifact = cast(
            UUID, create_progress_artifact(progress=100 * done / total, description=f"{name}: {total} jobs")
        )
        self._total = total
        self._done = done

    def advance_to(self, done: int) -> None:
        """Say how many jobs are finished; the UI is told at every whole twentieth."""
        shown, twentieths = (20 * count // self._total for count in (self._done, done))
        self._bar.update(done - self._done)
        self._done = done
        if twentieths > shown:
            update_progress_artifact(self._artifact, progress=100 * done / self._total)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
