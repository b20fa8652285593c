"""The task that writes the report of any experiment."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedfisher_core.reporting.folder import write_folder
from tasks.options import step


@step(run_name="report")
def report(folder: Path, rows: Sequence[Any], files: Mapping[str, bytes], content: str) -> Path:
    """Write the folder of a report; see `write_folder`."""
    return write_folder(folder, rows, files, content)
