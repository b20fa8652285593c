"""How far a run is: a bar in the terminal and an artifact in Prefect's UI."""

import sys
from types import TracebackType
from typing import Self, cast
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from tqdm import tqdm


class Progress:
    """Counts finished tasks.

    Args:
        name: of the benchmark.
        total: number of tasks.
    """

    def __init__(self, *, name: str, total: int) -> None:
        self._bar = tqdm(total=total, desc=name, unit="task", file=sys.stderr, disable=not sys.stderr.isatty())
        self._artifact = cast(UUID, create_progress_artifact(progress=0.0, description=f"{name}: {total} tasks"))
        self._total = total
        self._done = 0
        self._shown = 0

    def advance(self) -> None:
        """Count one more task; the UI is told at every whole twentieth."""
        self._done += 1
        self._bar.update()
        twentieths = 20 * self._done // self._total
        if twentieths > self._shown:
            self._shown = twentieths
            update_progress_artifact(self._artifact, progress=100 * self._done / self._total)

    def drop(self, count: int) -> None:
        """Take tasks off the total that will not be run."""
        self._total -= count
        self._bar.total = self._total
        self._bar.refresh()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
