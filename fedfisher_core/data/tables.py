"""Splits of data sets as tables: files are opened by their path alone, and their size is checked before reading."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedfisher_core.engine.errors import InputError, shortened
from fedfisher_core.engine.files import parse_json

MAX_ROWS = 10_000_000
"""Most rows of a split. A file of a few megabytes can hold many more rows that are equal."""

MAX_BYTES = 16 * 2**30
"""Most bytes of a decoded split, all of which is in memory at once."""

_NUMBER_BYTES = 8
# The key under which Parquet files keep the hub's description of their columns.
_HUB = b"huggingface"
_MOST_LISTED = 20


@dataclass(frozen=True)
class Table:
    """One split of a data set; columns are read on use.

    Args:
        schema: pyarrow's schema of all columns.
        read: makes a pyarrow table of some columns.
        features: the hub's description of columns, as its JSON; empty if there is none.
    """

    where: str
    schema: Any
    size: int
    read: Callable[[Sequence[str]], Any]
    features: Mapping[str, Any]

    @classmethod
    def of(cls, rows: Any, where: str, features: Mapping[str, Any] | None = None) -> "Table":
        """Take a pyarrow table as it is."""
        return cls(where, rows.schema, len(rows), rows.select, features or {})

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.names)

    def column(self, names: tuple[str, ...], what: str) -> str:
        """Choose the first of some columns that exists."""
        for name in names:
            if name in self.schema.names:
                return name
        more = ", ..." if len(self.columns) > _MOST_LISTED else ""
        found = ", ".join(repr(shortened(one)) for one in self.columns[:_MOST_LISTED])
        raise InputError(f"{self.where} has no {what} column {' or '.join(map(repr, names))}; it has [{found}{more}]")

    def cells(self, column: str) -> Any:
        """Read a column as one pyarrow array; InputError if it can't be read."""
        found = self.read([column]).column(0).unify_dictionaries()
        return found.combine_chunks() if found.num_chunks != 1 else found.chunk(0)

    def refuse(self, row: int, reason: str) -> InputError:
        """Make the error that names a row."""
        return InputError(f"{self.where}, row {row}: {reason}")


def require_file(path: Path, what: str) -> None:
    """Require a regular file, or a link to one: opening anything else may wait for ever."""
    if path.is_file():
        return
    if path.is_dir():
        raise InputError(f"{what} is a folder, not a file: {path}")
    if path.exists():
        raise InputError(f"{what} is no regular file: {path}")
    raise InputError(f"{what} is missing, no file {path}")


def open_file(path: Path, where: str, row_bytes: int) -> Table:
    """Open a Parquet file.

    Args:
        path: of the file; nothing in it is a pattern or an address.

    Raises:
        InputError: the file can't be read, has a column twice, or has more rows than are allowed.
    """
    with _opened(path, where) as file:
        rows, schema = file.metadata.num_rows, file.schema_arrow
        _require_size(f"{where} ({path})", rows, row_bytes)
        twice = next((name for name in schema.names if schema.names.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"{where} ({path}) has the column {shortened(twice)!r} twice; allowed: names that differ")
        features = _features((schema.metadata or {}).get(_HUB), f"{where} ({path})")
        texts = frozenset(field.name for field in schema if _is_text(field.type))
    return Table(where, schema, rows, partial(_read, path, where, texts), features)


def may_lack(path: Path, where: str, leaf: str) -> bool:
    """Whether a value may be missing in some row, according to the statistics of a Parquet file.

    Args:
        leaf: the value's path in the schema, such as `image.bytes`.

    Raises:
        InputError: the file can't be read.
    """
    with _opened(path, where) as file:
        column, _, field = leaf.partition(".")
        kind = file.schema_arrow.field(column).type
        if field not in [each.name for each in getattr(kind, "fields", [])]:
            return not _is_bytes(kind)
        chunks = [one for one in _chunks(file, column) if one.path_in_schema == leaf]
        return not chunks or any(one.statistics is None or one.statistics.null_count != 0 for one in chunks)


def of_hub(rows: Any, where: str, row_bytes: int) -> Table:
    """Take a table of the hub's library; see `open_file` for the arguments.

    Raises:
        InputError: it has more rows than are allowed.
    """
    _require_size(where, len(rows), row_bytes)

    def read(columns: Sequence[str]) -> Any:
        return rows.select_columns(list(columns)).with_format("arrow")[:]

    return Table(where, rows.features.arrow_schema, len(rows), read, rows.features.to_dict())


def _require_size(where: str, rows: int, row_bytes: int) -> None:
    if rows > MAX_ROWS:
        raise InputError(f"{where} has {rows:,} rows; allowed: up to {MAX_ROWS:,}")
    _require_bytes(f"{where}: {rows:,} decoded rows", rows * row_bytes)


def _require_bytes(what: str, needed: int) -> None:
    if needed > MAX_BYTES:
        raise InputError(f"{what} take {needed / 2**30:,.1f} GiB; allowed: up to {MAX_BYTES / 2**30:,.1f}")


def _is_text(kind: Any) -> bool:
    import pyarrow

    return kind in (pyarrow.string(), pyarrow.large_string()) or _is_bytes(kind)


def _is_bytes(kind: Any) -> bool:
    import pyarrow

    return kind in (pyarrow.binary(), pyarrow.large_binary())


def _read(path: Path, where: str, texts: frozenset[str], columns: Sequence[str]) -> Any:
    # A text that occurs in a million rows is held once.
    with _opened(path, where, [name for name in columns if name in texts]) as file:
        _require_values(file, f"{where} ({path})", columns)
        found = file.read(list(columns)).select(list(columns))
        found.validate(full=True)
        if len(found) != file.metadata.num_rows:
            raise InputError(
                f"{where} ({path}): {', '.join(map(shortened, columns))} has {len(found):,} rows, and the file says "
                f"{file.metadata.num_rows:,}; the file is damaged"
            )
        return found


@contextmanager
def _opened(path: Path, where: str, texts: Sequence[str] = ()) -> Iterator[Any]:
    """Open a Parquet file, and turn the libraries' many errors into one line that says what is wrong."""
    # Listings of data sets should not wait for this import.
    import pyarrow.parquet

    require_file(path, where)
    try:
        with path.open("rb") as file:
            yield pyarrow.parquet.ParquetFile(file, read_dictionary=texts)
    except InputError:
        raise
    except (OSError, ValueError, KeyError, OverflowError, MemoryError, pyarrow.ArrowException) as error:
        reason = shortened(str(error)) or type(error).__name__
        raise InputError(f"{where} can't be read ({path}): {reason}") from error


def _require_values(file: Any, where: str, columns: Sequence[str]) -> None:
    """Bound the number of values in lists, which the number of rows does not bound."""
    for column in columns:
        if not holds_lists(file.schema_arrow.field(column).type):
            continue
        values = sum(one.num_values for one in _chunks(file, column))
        _require_bytes(f"{where}: {values:,} values in column {shortened(column)!r}", values * _NUMBER_BYTES)


def _chunks(file: Any, column: str) -> Iterator[Any]:
    """The metadata of a nested column, row group by row group."""
    for group in range(file.metadata.num_row_groups):
        # Damage raises an error here; reading the metadata of a damaged chunk would end the process.
        next(file.iter_batches(batch_size=1, row_groups=[group], columns=[column]), None)
        found = file.metadata.row_group(group)
        chunks = [found.column(place) for place in range(found.num_columns)]
        yield from (one for one in chunks if one.path_in_schema.startswith(f"{column}."))


def holds_lists(kind: Any) -> bool:
    """Whether a type of pyarrow is one of lists."""
    import pyarrow

    types = pyarrow.types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _features(text: bytes | None, where: str) -> Mapping[str, Any]:
    if text is None:
        return {}
    try:
        found: Any = parse_json(text)
        for key in ("info", "features"):
            if not isinstance(found, dict) or key not in found:
                raise ValueError(f"it has no {key!r}")
            found = found[key]
        if not isinstance(found, dict):
            raise ValueError(f"its features are {shortened(repr(found))}")
    except ValueError as error:
        raise InputError(
            f"{where}: what the file's metadata say under 'huggingface' can't be read: {shortened(str(error))}; "
            "allowed: the JSON of the hub's library, or nothing"
        ) from error
    return found
