"""Result rows of any experiment, and their files results.json and results.csv."""

import csv
import io
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from fedfisher_core.configuration import nearest
from fedfisher_core.errors import InputError, shortened, shown
from fedfisher_core.files import parse_json

T = TypeVar("T")

RESULTS = "results.json"
"""Name of the file that a report keeps its rows in."""

ARTIFACTS = "artifacts.json"
"""Name of the file that lists what a report rests on, beside what its rows name."""

# What a spreadsheet takes for the beginning of a formula; after an apostrophe it is text.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_rows(rows: Sequence[Any], folder: Path) -> tuple[Path, Path]:
    """Write the rows of any experiment as results.json (one row a line) and results.csv, each replaced in one step.

    Args:
        rows: data classes of one type, at least one, in the files' order.
        folder: where to; made if missing.

    Returns:
        The paths of results.json and results.csv.
    """
    lines = ",\n".join("  " + json.dumps(asdict(row), allow_nan=False) for row in rows)
    return (
        write_file(folder / RESULTS, f"[\n{lines}\n]\n".encode()),
        write_file(folder / "results.csv", as_csv(rows)),
    )


def as_csv(rows: Sequence[Any]) -> bytes:
    """Write rows as CSV that a spreadsheet reads without running any of it.

    Args:
        rows: data classes of one type, at least one.

    Returns:
        A line of the fields' names and one a row; what is None is empty, and what is neither text nor None is JSON.
    """
    names = [field.name for field in fields(rows[0])]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_csv_field(getattr(row, name)) for name in names] for row in rows)
    return text.getvalue().encode()


def experiment_of_rows(path: Path) -> str | None:
    """Say of which experiment the rows of a results.json are, whatever else may be wrong with them.

    Args:
        path: the file.

    Returns:
        What its rows have under `experiment`; None where they have nothing, as those of a benchmark.
    """
    try:
        rows = parse_json(path.read_bytes()) if path.is_file() else None
    except (OSError, ValueError):
        return None
    named = [row.get("experiment") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return next((name for name in named if isinstance(name, str)), None)


def read_rows(path: Path, row: type[T]) -> list[T]:
    """Read a results.json.

    Args:
        path: the file.
        row: data class of its rows.

    Returns:
        The rows, in the file's order.

    Raises:
        InputError: the file is missing, or is no list of such rows.
    """
    # A pipe would be waited for.
    if not path.is_file():
        raise InputError(f"no results at {path}; expected a {RESULTS}")
    try:
        return TypeAdapter(list[row]).validate_json(path.read_bytes())  # type: ignore[valid-type]
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}") from error
    except ValidationError as error:
        problem = _explained(dict(error.errors(include_url=False)[0]), row)
        raise InputError(f"{path} is no list of result rows: {problem}") from error


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
    """Write which artifacts a report rests on beside those that its rows name.

    Args:
        keys: of the artifacts.

    Returns:
        The file's content.
    """
    return json.dumps(keys, indent=0).encode() + b"\n"


@dataclass(frozen=True)
class _Trace:
    """What the rows of all experiments have in common."""

    artifact: str


def read_artifact_keys(path: Path) -> list[str]:
    """Read which artifacts a results.json rests on, whatever experiment its rows are of.

    Args:
        path: the file.

    Returns:
        The key in each row, and those that a file beside it names.

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
        # The csv module leaves carriage returns bare, which readers take for the end of a row.
        text = value.replace("\r", " ")
        return f"'{text}" if value.startswith(_FORMULA) else text
    return json.dumps(value, allow_nan=False, default=asdict)


def write_file(path: Path, data: bytes) -> Path:
    """Write a file so that a reader sees the old or the new content, never a part.

    Args:
        path: the file; its folder is made if missing.
        data: the content.

    Returns:
        The path.

    Raises:
        InputError: the file can't be written, such as where the disk is full.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(data)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path} can't be written: {error.strerror}") from error
    return path
