"""Columns of a table as tensors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfisher_core.data.layouts import Tokens, Vectors
from fedfisher_core.data.tables import Table, holds_lists
from fedfisher_core.engine.errors import InputError, shortened

Codes = NDArray[np.int64]

# Units in a second.
_UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


@dataclass(frozen=True)
class Names:
    """A column of names.

    Args:
        codes: for each row an index into the names, shape (rows,).
        names: each once, in sorted order.
        kind: texts, whole numbers, or the column's type, to compare the columns of two splits.
    """

    codes: Codes
    names: tuple[Any, ...]
    kind: str


def names(table: Table, column: str) -> Names:
    """Read a column of names, which may be numbers; InputError if it holds something else, or a name is missing."""
    import pyarrow

    cells = table.cells(column)
    kind = value_type(cells)
    if holds_texts(kind):
        said = "texts"
    elif holds_integers(kind):
        said = "whole numbers"
    elif kind in (pyarrow.float32(), pyarrow.float64(), pyarrow.bool_()):
        said = str(kind)
    else:
        raise InputError(
            f"{table.where}: column {column!r} holds {shortened(str(kind))}; allowed: names, as texts or numbers"
        )
    codes, found = coded(table, column, cells, "name")
    return Names(codes, tuple(found), said)


def coded(table: Table, column: str, cells: Any, what: str) -> tuple[Codes, list[Any]]:
    """Number the distinct cells of a column of texts or numbers: each row's number, and the cells in sorted order."""
    import pyarrow

    packed = cells if pyarrow.types.is_dictionary(cells.type) else cells.dictionary_encode()
    values = packed.dictionary.to_pylist()
    # For a missing name, other tools write NaN or an empty text.
    missing = [one is None or one != one or (isinstance(one, str) and not one.strip()) for one in values]
    indices = packed.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(np.array([*missing, True])[indices])
    if len(wrong):
        raise table.refuse(int(wrong[0]), f"the {what} is missing in column {column!r}; allowed: a {what} in every row")
    found = sorted({values[place] for place in np.unique(indices)})
    places = {one: place for place, one in enumerate(found)}
    return np.array([places.get(one, -1) for one in values], dtype=np.int64)[indices], found


def vectors(table: Table, columns: tuple[str, ...], layout: Vectors, *, may_miss: bool = False) -> Tensor:
    """Read rows of numbers.

    Args:
        columns: their numbers, or lists of numbers, make a row together, in this order.
        layout: how many numbers a row must have.

    Returns:
        float64, which numbers such as Unix times need until they are scaled, shape (rows, features); NaN for a missing
        number. Times are in seconds since midnight (times of a day) or since 1970 (UTC); dates are in days.

    Raises:
        InputError: a column is missing, or holds no numbers; a required number is missing or not finite; or rows have
            another length.
    """
    for column in columns:
        table.column((column,), "feature")
    lists = sum(holds_lists(table.schema.field(column).type) for column in columns)
    # If only one column has lists, their length follows from the layout.
    expected = layout.features - len(columns) + 1 if lists == 1 else None
    parts = [_numbers(table, column, may_miss, expected) for column in columns]
    width = sum(part.shape[1] for part in parts)
    if width != layout.features:
        raise InputError(
            f"{table.where}: columns {', '.join(map(repr, columns))} hold {width} numbers a row; allowed: "
            f"{layout.features}"
        )
    return torch.from_numpy(np.concatenate(parts, axis=1))


def require_like(tables: Sequence[Table], columns: Sequence[str]) -> None:
    """Refuse a column of numbers in one split and of times in another, because their units differ."""
    for column in columns:
        first, *others = [(table, table.schema.field(table.column((column,), "feature")).type) for table in tables]
        for table, kind in others:
            if _measure(kind) != _measure(first[1]):
                raise InputError(
                    f"column {column!r} holds {shortened(str(first[1]))} in {first[0].where}, and "
                    f"{shortened(str(kind))} in {table.where}; allowed: numbers in both, or the same kind of time"
                )


def _measure(kind: Any) -> str:
    """The quantity that a column's numbers measure: a name for each kind of time, and one for all others."""
    import pyarrow

    known = {
        "date": pyarrow.types.is_date,
        "time": pyarrow.types.is_time,
        "timestamp": pyarrow.types.is_timestamp,
        "duration": pyarrow.types.is_duration,
    }
    return next((name for name, is_kind in known.items() if is_kind(kind)), "number")


def _numbers(table: Table, column: str, may_miss: bool, expected: int | None) -> NDArray[np.float64]:
    """Read a column of numbers, shape (rows, 1), or of lists, which have the expected or the most frequent length."""
    import pyarrow

    cells = table.cells(column)
    width = 1
    if holds_lists(cells.type):
        lengths = _lengths(table, column, cells)
        found, counts = np.unique(lengths, return_counts=True)
        usual = int(found[counts.argmax()]) if len(found) != 1 and expected is None else expected
        width = max(int(found[0]) if len(found) == 1 else usual or 1, 1)
        cells = _flattened(table, column, cells, lengths, width)
    if pyarrow.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    values = _doubles(table, column, cells).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    wrong = np.flatnonzero(np.isinf(single) if may_miss else ~np.isfinite(single))
    if len(wrong):
        cell = cells[int(wrong[0])].as_py()
        # For a missing number, other tools write NaN.
        found = "a number is missing" if cell is None or cell != cell else f"{cell} is not finite as float32"
        raise table.refuse(int(wrong[0]) // width, f"{found} in column {column!r}; allowed: finite numbers")
    return values.reshape(-1, width)


def _doubles(table: Table, column: str, cells: Any) -> Any:
    import pyarrow
    import pyarrow.compute

    kind, types = cells.type, pyarrow.types
    plain = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    if any(is_kind(kind) for is_kind in plain):
        return cells.cast(pyarrow.float64(), safe=False)
    match _measure(kind):
        case "date":
            return cells.cast(pyarrow.date32()).cast(pyarrow.int32()).cast(pyarrow.float64())
        case "number":
            raise InputError(
                f"{table.where}: column {column!r} holds {shortened(str(kind))}; allowed: numbers or times, or lists "
                "of them"
            )
        case _:
            whole = cells.cast(pyarrow.int32() if str(kind).startswith("time32") else pyarrow.int64())
            return pyarrow.compute.divide(whole.cast(pyarrow.float64(), safe=False), _UNITS[kind.unit])


def tokens(table: Table, column: str, layout: Tokens) -> Tensor:
    """Read a column of lists of whole numbers as sequences of tokens: int64, shape (rows, length).

    Raises:
        InputError: the column holds something else; a list or a token is missing, of another length or out of range.
    """
    cells = table.cells(column)
    if not holds_lists(cells.type) or not holds_integers(cells.type.value_type):
        kind = shortened(str(value_type(cells)))
        raise InputError(f"{table.where}: column {column!r} holds {kind}; allowed: lists of whole numbers")
    flat = _flattened(table, column, cells, _lengths(table, column, cells), layout.length)
    if flat.null_count:
        row = int(np.flatnonzero(flat.is_null().to_numpy(zero_copy_only=False))[0]) // layout.length
        raise table.refuse(row, f"a token is missing in column {column!r}")
    values = flat.to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero((values < 0) | (values >= layout.vocabulary))
    if len(wrong):
        raise table.refuse(
            int(wrong[0]) // layout.length,
            f"token {values[wrong[0]]} is out of range; allowed: 0 to {layout.vocabulary - 1}",
        )
    return torch.from_numpy(values.astype(np.int64)).reshape(-1, layout.length)


def holds_texts(kind: Any) -> bool:
    """Whether a type of pyarrow is one of texts."""
    import pyarrow

    types = pyarrow.types
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def holds_integers(kind: Any) -> bool:
    """Whether a type of pyarrow is one of whole numbers."""
    import pyarrow

    return pyarrow.types.is_integer(kind)


def value_type(cells: Any) -> Any:
    """The type of cells, which may be encoded in a dictionary."""
    import pyarrow

    return cells.type.value_type if pyarrow.types.is_dictionary(cells.type) else cells.type


def _lengths(table: Table, column: str, cells: Any) -> NDArray[np.integer]:
    import pyarrow.compute

    if cells.null_count:
        row = int(np.flatnonzero(cells.is_null().to_numpy(zero_copy_only=False))[0])
        raise table.refuse(row, f"the list is missing in column {column!r}")
    return pyarrow.compute.list_value_length(cells).to_numpy(zero_copy_only=False)


def _flattened(table: Table, column: str, cells: Any, lengths: NDArray[np.integer], length: int) -> Any:
    """Concatenate a column's lists, which must all have the same length."""
    wrong = np.flatnonzero(lengths != length)
    if len(wrong):
        raise table.refuse(
            int(wrong[0]), f"the list in column {column!r} has length {lengths[wrong[0]]}; allowed: {length}"
        )
    return cells.flatten()
