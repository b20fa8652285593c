"""The folder of a report: result files, page and pictures, and a stamp that says what they show."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedfisher_core.files import read_regular
from fedfisher_core.reporting.rows import write_file, write_rows

FAILED, TRACES = "failed.json", "failed.log"
"""Names of the files that say which jobs failed, and where."""

_ROWS = ("results.json", "results.csv")
# The digest, then the names of all files, a line each.
_STAMP = ".content"
_STAMP_BYTES = 2**20


def write_folder(folder: Path, rows: Sequence[Any], files: Mapping[str, bytes], content: str) -> Path:
    """Write results.json, results.csv, index.html and whatever else belongs to a report, each in one step.

    Args:
        folder: where to; made if missing.
        rows: the results.
        files: the page and its pictures, by name.
        content: digest of what the report shows, written last, so that a report that was cut off is written again.

    Returns:
        The folder.
    """
    write_rows(rows, folder)
    for stale in {FAILED, TRACES} - set(files):
        (folder / stale).unlink(missing_ok=True)
    for name, data in files.items():
        write_file(folder / name, data)
    write_file(folder / _STAMP, "\n".join([content, *_ROWS, *files]).encode())
    return folder


def is_current(folder: Path, content: str) -> bool:
    """Say whether a report is there and shows what it should.

    Args:
        folder: the report's.
        content: digest of what it should show.

    Returns:
        Whether all is there.
    """
    stamp = folder / _STAMP
    try:
        shown, *names = read_regular(stamp, limit=_STAMP_BYTES).decode().split("\n")
    except (OSError, UnicodeDecodeError):
        # What can't be read is written again.
        return False
    return shown == content and all(os.path.isfile(folder / name) for name in names)
