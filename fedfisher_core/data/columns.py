"""Columns of a table: which there are, and what they hold, as tensors."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedfisher_core.errors import InputError
from fedfisher_core.layouts import Tokens, Vectors


@dataclass(frozen=True)
class Table:
    """One split of a data set, as it is read.

    Args:
        rows: a table of the `datasets` package, or of pyarrow.
        where: names the split and the data set in messages.
    """

    rows: Any
    where: str

    def column(self, names: tuple[str, ...], what: str) -> str:
        """Choose a column.

        Args:
            names: the first of them that is present counts.
            what: it holds, for the message.

        Returns:
            Its name.

        Raises:
            InputError: there is none.
        """
        for name in names:
            if name in self.rows.column_names:
                return name
        raise InputError(
            f"{self.where} has no {what} column {' or '.join(map(repr, names))}; it has {self.rows.column_names}"
        )

    def cells(self, column: str) -> Any:
        """Read a column.

        Args:
            column: its name.

        Returns:
            An array of pyarrow in one piece.
        """
        import pyarrow

        if isinstance(self.rows, pyarrow.Table):
            found = self.rows.column(column)
        else:
            found = self.rows.select_columns([column]).with_format("arrow")[:].column(0)
        return found.combine_chunks() if found.num_chunks != 1 else found.chunk(0)

    def refuse(self, row: int, reason: str) -> InputError:
        """Make the error that names a row."""
        return InputError(f"{self.where}, row {row}: {reason}")


def whole_numbers(table: Table, column: str) -> Tensor:
    """Read a column of whole numbers.

    Args:
        table: the split.
        column: its name.

    Returns:
        int64, shape (rows,).

    Raises:
        InputError: it holds something else, or a cell is empty.
    """
    values = np.asarray(table.rows[column][:])
    if values.dtype.kind not in "iu":
        raise InputError(f"{table.where}: column {column!r} must hold whole numbers, and in every row")
    return torch.from_numpy(values.astype(np.int64))


def names(table: Table, column: str) -> list[Any]:
    """Read a column of names, which may be numbers.

    Args:
        table: the split.
        column: its name.

    Returns:
        One name a row.

    Raises:
        InputError: the column holds something else, or a name is missing.
    """
    import pyarrow

    cells = table.cells(column)
    kind = cells.type
    kinds = (pyarrow.types.is_string, pyarrow.types.is_large_string, pyarrow.types.is_integer)
    if not any(is_kind(kind) for is_kind in (*kinds, pyarrow.types.is_floating, _is_bool)):
        raise InputError(f"{table.where}: column {column!r} holds {kind}; allowed: names, as texts or numbers")
    found = cells.to_pylist()
    for row, name in enumerate(found):
        # NaN is what other tools write where a name is missing, and an empty text.
        if name is None or name != name or (isinstance(name, str) and not name.strip()):
            raise table.refuse(row, f"the name is missing in column {column!r}; allowed: a name in every row")
    return found


def vectors(table: Table, columns: tuple[str, ...], layout: Vectors, *, may_miss: bool = False) -> Tensor:
    """Read rows of numbers.

    Args:
        table: the split.
        columns: whose numbers, or lists of numbers, make a row together, in this order.
        layout: how many there must be.
        may_miss: whether numbers may be missing.

    Returns:
        float32, shape (rows, features); NaN where a number is missing.

    Raises:
        InputError: a column is missing, or holds no numbers; a number is missing that must be there, or is not finite;
            rows are of another length.
    """
    parts = [_numbers(table, table.column((column,), "feature"), may_miss) for column in columns]
    width = sum(part.shape[1] for part in parts)
    if width != layout.features:
        raise InputError(
            f"{table.where}: columns {', '.join(map(repr, columns))} hold {width} numbers a row; allowed: "
            f"{layout.features}"
        )
    return torch.from_numpy(np.concatenate(parts, axis=1))


def _numbers(table: Table, column: str, may_miss: bool) -> np.ndarray:
    """Read the numbers or lists of numbers of a column, shape (rows, numbers)."""
    import pyarrow

    cells = table.cells(column)
    width = 1
    if _is_list(cells.type):
        width = max(_lengths(table, column, cells).max().item(), 1)
        cells = _flattened(table, column, cells, width)
    kind = cells.type
    if not any(is_kind(kind) for is_kind in (pyarrow.types.is_integer, pyarrow.types.is_floating, _is_bool)):
        raise InputError(f"{table.where}: column {column!r} holds {kind}; allowed: numbers, or lists of them")
    with np.errstate(over="ignore"):
        values = cells.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False).astype(np.float32)
    wrong = np.flatnonzero(np.isinf(values) if may_miss else ~np.isfinite(values))
    if len(wrong):
        cell = cells[int(wrong[0])].as_py()
        # NaN is what other tools write where a number is missing.
        found = "a number is missing" if cell is None or cell != cell else f"{cell} is not finite as float32"
        raise table.refuse(int(wrong[0]) // width, f"{found} in column {column!r}; allowed: finite numbers")
    return values.reshape(-1, width)


def tokens(table: Table, column: str, layout: Tokens) -> Tensor:
    """Read sequences of tokens.

    Args:
        table: the split.
        column: of lists of whole numbers.
        layout: how long each must be, and how many tokens there are.

    Returns:
        int64, shape (rows, length).

    Raises:
        InputError: the column holds something else; a list or a token is missing, of another length or out of range.
    """
    import pyarrow

    cells = table.cells(column)
    if not _is_list(cells.type) or not pyarrow.types.is_integer(cells.type.value_type):
        raise InputError(f"{table.where}: column {column!r} holds {cells.type}; allowed: lists of whole numbers")
    flat = _flattened(table, column, cells, layout.length)
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


def _is_list(kind: Any) -> bool:
    import pyarrow

    return any(
        is_kind(kind)
        for is_kind in (pyarrow.types.is_list, pyarrow.types.is_large_list, pyarrow.types.is_fixed_size_list)
    )


def _is_bool(kind: Any) -> bool:
    import pyarrow

    return pyarrow.types.is_boolean(kind)


def _lengths(table: Table, column: str, cells: Any) -> np.ndarray:
    """Lengths of a column's lists."""
    import pyarrow.compute

    if cells.null_count:
        row = int(np.flatnonzero(cells.is_null().to_numpy(zero_copy_only=False))[0])
        raise table.refuse(row, f"the list is missing in column {column!r}")
    return pyarrow.compute.list_value_length(cells).to_numpy(zero_copy_only=False)


def _flattened(table: Table, column: str, cells: Any, length: int) -> Any:
    """Put a column's lists one behind the other."""
    lengths = _lengths(table, column, cells)
    wrong = np.flatnonzero(lengths != length)
    if len(wrong):
        raise table.refuse(
            int(wrong[0]), f"the list in column {column!r} has length {lengths[wrong[0]]}; allowed: {length}"
        )
    return cells.flatten()
