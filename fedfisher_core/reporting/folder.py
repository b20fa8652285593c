"""The folder of a report: result files, page and pictures, and a stamp that says what they show."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedfisher_core.files import open_regular, read_regular
from fedfisher_core.reporting.rows import RESULTS, write_file, write_rows

FAILED, TRACES = "failed.json", "failed.log"
"""Names of the files that say which jobs failed, and where."""

_ROWS = (RESULTS, "results.csv")
# The digest of what is shown, then the SHA-256 and the name of every file, a line each.
_STAMP = ".content"
_STAMP_BYTES = 2**20
_MOST_BYTES = 2**34


def write_folder(folder: Path, rows: Sequence[Any], files: Mapping[str, bytes], content: str) -> Path:
    """Write results.json, results.csv, index.html and whatever else belongs to a report, each in one step.

    What an earlier report of the same name left beside goes.

    Args:
        folder: where to; made if missing.
        rows: the results.
        files: the page and its pictures, by name.
        content: digest of what the report shows, written last, so that a report that was cut off is written again.

    Returns:
        The folder.
    """
    stale = {FAILED, TRACES, *_stamped(folder)} - {*_ROWS, *files}
    write_rows(rows, folder)
    for name in stale:
        (folder / name).unlink(missing_ok=True)
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
        shown, sums = _read_stamp(folder)
        return shown == content and all(_sha256(folder / name) == sha256 for name, sha256 in sums.items())
    except (OSError, ValueError):
        # What can't be read is written again.
        return False


def _read_stamp(folder: Path) -> tuple[str, dict[str, str]]:
    """Read what a report shows, and the SHA-256 of its files by name."""
    shown, *sums = read_regular(folder / _STAMP, limit=_STAMP_BYTES).decode().split("\n")
    return shown, {name: sha256 for sha256, _, name in (line.partition(" ") for line in sums)}


def _stamped(folder: Path) -> list[str]:
    """Name the files that an earlier report wrote into its own folder; none where it left no stamp."""
    try:
        _, sums = _read_stamp(folder)
    except (OSError, ValueError):
        return []
    return [name for name in sums if name and Path(name).name == name]


def _sha256(path: Path) -> str:
    with open_regular(path, limit=_MOST_BYTES) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
