"""The tasks: one computes jobs of any kind, and one writes the report."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedfisher_core.engine.errors import OutputError, UnwritableError
from fedfisher_core.reporting.rows import write_folder
from tasks.common import step


@step(run_name="{title}")
def compute_job(title: str, work: Callable[[], None]) -> None:
    """Compute jobs of one class."""
    work()


@step(run_name="report")
def report(folder: Path, rows: Sequence[Any], files: Mapping[str, bytes], content: str) -> Path:
    """Write the folder of a report and the script that draws its charts; see `write_folder`."""
    # What draws takes a second to load.
    from fedfisher_core.reporting.chart_script import write_script

    try:
        write_script(folder.parent)
        return write_folder(folder, rows, files, content)
    except (OSError, UnwritableError) as error:
        raise OutputError(f"the report can't be written to {folder}: {error}; all results are kept") from error
