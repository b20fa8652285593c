"""The task that writes the report of any experiment."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedfisher_core.errors import OutputError
from fedfisher_core.reporting.folder import write_folder
from tasks.options import step


@step(run_name="report")
def report(folder: Path, rows: Sequence[Any], files: Mapping[str, bytes], content: str) -> Path:
    """Write the folder of a report; see `write_folder`."""
    try:
        return write_folder(folder, rows, files, content)
    except OSError as error:
        raise OutputError(f"the report can't be written to {folder}: {error}; all results are kept") from error
