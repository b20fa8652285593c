"""Result rows of any experiment, their files, and the folder of a report."""

import csv
import hashlib
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from fedfisher_core.engine.errors import InputError, UnwritableError, in_one_line, shortened, shown
from fedfisher_core.engine.files import open_regular, parse_json, read_regular, replace_file
from fedfisher_core.settings.reading import nearest

T = TypeVar("T")

RESULTS = "results.json"
"""File with a report's rows."""

ARTIFACTS = "artifacts.json"
"""File with the keys of artifacts that a report needs in addition to those that its rows name."""

_MOST_BYTES = 2**28
_LARGEST = 1e100
"""The largest number in a row; deviations over seeds square it."""

# A spreadsheet takes a text that begins so for a formula, unless an apostrophe stands before it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_rows(rows: Sequence[Any], folder: Path) -> tuple[Path, Path]:
    """Write rows as results.json (one row a line) and results.csv, each replaced in one step; return both paths.

    Args:
        rows: data classes of one type, at least one, in the files' order.
    """
    lines = ",\n".join("  " + json.dumps(asdict(row), allow_nan=False) for row in rows)
    return (
        write_file(folder / RESULTS, f"[\n{lines}\n]\n".encode()),
        write_file(folder / "results.csv", as_csv(rows)),
    )


def as_csv(rows: Sequence[Any]) -> bytes:
    """Write rows as CSV that a spreadsheet reads without running any of it.

    None is empty; what is neither text nor None is JSON.

    Args:
        rows: data classes of one type, at least one.
    """
    names = [field.name for field in fields(rows[0])]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_csv_field(getattr(row, name)) for name in names] for row in rows)
    return text.getvalue().encode()


def experiment_of_rows(path: Path) -> str | None:
    """Read which experiment the rows of a results.json belong to, even where the rows are invalid.

    None where the rows do not name one, as those of a benchmark.
    """
    try:
        rows = parse_json(path.read_bytes()) if path.is_file() and path.stat().st_size <= _MOST_BYTES else None
    except (OSError, ValueError):
        return None
    named = [row.get("experiment") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return next((name for name in named if isinstance(name, str)), None)


def read_rows(path: Path, row: type[T]) -> list[T]:
    """Read a results.json, in the file's order.

    Raises:
        InputError: the file is missing, too large, or no list of such rows.
    """
    # Reading a pipe would wait for it.
    if not path.is_file():
        raise InputError(f"no results at {path}; expected a {RESULTS}")
    try:
        if (size := path.stat().st_size) > _MOST_BYTES:
            raise InputError(f"{path} has {size:,} bytes; allowed: up to {_MOST_BYTES:,}")
        data = path.read_bytes()
        rows: list[T] = TypeAdapter(list[row]).validate_json(data)  # type: ignore[valid-type]
        # Pydantic accepts integers of any length, and numbers that are not finite.
        parse_json(data, largest=_LARGEST)
        return rows
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}") from error
    except ValidationError as error:
        problem = _explained(dict(error.errors(include_url=False)[0]), row)
        raise InputError(f"{path} is no list of result rows: {problem}") from error
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path} is no list of result rows: {in_one_line(error)}") from error


def _explained(problem: Mapping[str, Any], row: Any) -> str:
    """Turn one of pydantic's errors into a phrase with the row, the field and what is allowed."""
    message = shortened(problem["msg"].removeprefix("Value error, "))
    if not problem["loc"] or not isinstance(problem["loc"][0], int):
        return message
    number, *inside = problem["loc"]
    place, known = f"row {number + 1}", fields(row)
    if not inside:
        return f"{place}: {message}"
    if problem["type"] == "missing":
        needed = [one.name for one in known if one.default is MISSING and one.default_factory is MISSING]
        return f"{place} lacks the field {inside[0]!r}; allowed: rows with the fields {', '.join(needed)}"
    if problem["type"] == "unexpected_keyword_argument":
        return f"{place} has the unknown field {shown(inside[0])}; {nearest(inside[0], [one.name for one in known])}"
    return f"{place}, {shortened('.'.join(map(str, inside)))}={shown(problem['input'])}: {message}"


def artifacts_json(keys: Sequence[str]) -> bytes:
    """Write the keys of artifacts that a report needs in addition to those that its rows name."""
    return json.dumps(keys, indent=0).encode() + b"\n"


@dataclass(frozen=True)
class _Trace:
    """What the rows of all experiments have in common."""

    artifact: str


def read_artifact_keys(path: Path) -> list[str]:
    """Read the keys of all artifacts that a results.json needs: of its rows, and of the file ARTIFACTS in its folder.

    Raises:
        InputError: the file is missing, or is no list of rows that name their artifact; or the other is no list.
    """
    keys, others = [row.artifact for row in read_rows(path, _Trace)], path.with_name(ARTIFACTS)
    if not os.path.lexists(others):
        return keys
    try:
        return keys + TypeAdapter(list[str]).validate_json(others.read_bytes())
    except OSError as error:
        raise InputError(f"{others} can't be read: {error.strerror}") from error
    except ValidationError as error:
        raise InputError(f"{others} is no list of artifacts' keys") from error


def _csv_field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        # The csv module does not quote carriage returns, which readers take for the end of a row.
        text = value.replace("\r", " ")
        return f"'{text}" if value.startswith(_FORMULA) else text
    return json.dumps(value, allow_nan=False, default=asdict)


def write_file(path: Path, data: bytes) -> Path:
    """Write a file as `replace_file` does.

    Raises:
        UnwritableError: the file can't be written, such as where the disk is full.
    """
    try:
        replace_file(path, data)
    except OSError as error:
        raise UnwritableError(f"{path} can't be written: {error.strerror}") from error
    return path


FAILED, TRACES = "failed.json", "failed.log"
"""Files that say which jobs failed, and where."""

PAGE = "index.html"
"""Name of the report's page."""

_ROWS = (RESULTS, "results.csv")
# The digest of what is shown, then the SHA-256 and the name of every file, a line each.
_STAMP = ".content"
_STAMP_BYTES = 2**20
_MOST_STAMP_BYTES = 2**34


def write_folder(folder: Path, rows: Sequence[Any], files: Mapping[str, bytes], content: str) -> Path:
    """Write results.json, results.csv, index.html and all other files of a report, each in one step.

    Other files of an earlier report of the same name are deleted.

    Args:
        files: the page and its pictures, by name.
        content: digest of what the report shows, written last, so that an interrupted report is written again.
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
    """Whether a report exists, shows the content with this digest, and has all files as they were written.

    A report next to which a later run has noted that all of its jobs failed is not current.
    """
    if (folder / FAILED).exists():
        return False
    try:
        shown, sums = _read_stamp(folder)
        return shown == content and all(_sha256(folder / name) == sha256 for name, sha256 in sums.items())
    except (OSError, ValueError):
        # A report that can't be read is written again.
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
    with open_regular(path, limit=_MOST_STAMP_BYTES) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
