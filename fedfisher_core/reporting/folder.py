"""The folder of a report: result files, page and pictures, and a stamp that says what they show."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedfisher_core.files import open_regular, read_regular
from fedfisher_core.reporting.rows import write_file, write_rows

FAILED, TRACES = "failed.json", "failed.log"
"""Names of the files that say which jobs failed, and where."""

_ROWS = ("results.json", "results.csv")
# The digest of what is shown, then the SHA-256 and the name of every file, a line each.
_STAMP = ".content"
_STAMP_BYTES = 2**20
_MOST_BYTES = 2**34


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
    sums = [f"{_sha256(folder / name)} {name}" for name in (*_ROWS, *files)]
    write_file(folder / _STAMP, "\n".join([content, *sums]).encode())
    return folder


def is_current(folder: Path, content: str) -> bool:
    """Say whether a report is there and shows what it should.

    Args:
        folder: the report's.
        content: digest of what it should show.

    Returns:
        Whether all is there as it was written.
    """
    try:
        shown, *sums = read_regular(folder / _STAMP, limit=_STAMP_BYTES).decode().split("\n")
        files = [line.partition(" ") for line in sums]
        return shown == content and all(_sha256(folder / name) == sha256 for sha256, _, name in files)
    except (OSError, ValueError):
        # What can't be read is written again.
        return False


def _sha256(path: Path) -> str:
    with open_regular(path, limit=_MOST_BYTES) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
