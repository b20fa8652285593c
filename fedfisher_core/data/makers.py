"""The makers of a data set's examples, as a column of its files names them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedfisher_core.data.columns import Codes, names
from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.data.tables import Table
from fedfisher_core.engine.errors import InputError, printable, shortened


@dataclass(frozen=True)
class Makers:
    """The makers of the examples of both splits.

    Args:
        names: makers of training examples in sorted order, then those of test examples alone.
        train: index of each training example's maker, shape (training examples,).
        test: likewise, shape (test examples,); None if the test split has no such column.
    """

    names: tuple[str, ...]
    train: Codes
    test: Codes | None


def read_makers(train: Table, test: Table, column: str, *, needs_test: bool) -> Makers:
    """Read the maker of each example.

    Args:
        column: names the maker; the test split may lack it unless `needs_test`.

    Raises:
        InputError: the column is missing, a name is missing in it, or it holds another type in either split.
    """
    made = names(train, maker_column(train, column))
    if not needs_test and column not in test.columns:
        return Makers(names=_shown(made.names, column), train=made.codes, test=None)
    tested = names(test, maker_column(test, column))
    if tested.kind != made.kind:
        # The number 0 and the text 0 may be one maker or two.
        raise InputError(
            f"partition.column={column!r} holds {made.kind} in {train.where}, such as {made.names[0]!r}, and "
            f"{tested.kind} in {test.where}, such as {tested.names[0]!r}; allowed: one type in both"
        )
    known = set(made.names)
    every = (*made.names, *(name for name in tested.names if name not in known))
    places = {name: place for place, name in enumerate(every)}
    codes = np.array([places[name] for name in tested.names], dtype=np.int64)[tested.codes]
    return Makers(names=_shown(every, column), train=made.codes, test=codes)


def maker_column(table: Table, column: str) -> str:
    """Check that a split has the column that the settings name, and return its name; InputError if not."""
    if column not in table.columns:
        allowed = shortened(", ".join(table.columns))
        raise InputError(f"partition.column={column!r}: {table.where} has no such column; allowed: {allowed}")
    return column


def makers_of_parts(spec: DatasetSpec, column: str, train: Sequence[int], test: Sequence[int]) -> Makers:
    """The parts of a data set as makers of its examples, given the number of examples of each part.

    Raises:
        InputError: the column is not the one that names the parts.
    """
    if column != spec.client_column:
        raise InputError(
            f"partition.column={column!r}: data set {spec.name!r} has no such column; allowed: {spec.client_column}"
        )
    places = np.arange(len(spec.parts), dtype=np.int64)
    return Makers(names=spec.parts, train=np.repeat(places, train), test=np.repeat(places, test))


def count_makers(known: Sequence[str], train: Codes, test: Codes | None) -> dict[str, int]:
    """Count each maker's training examples that are used; 0 for a maker of test examples alone.

    Args:
        test: makers of the test examples; None if they are not known.
    """
    counts = np.bincount(train, minlength=len(known))
    present = counts > 0
    if test is not None:
        present[test] = True
    return {name: int(count) for name, count, there in zip(known, counts, present, strict=True) if there}


def _shown(made: Sequence[Any], column: str) -> tuple[str, ...]:
    """Make names printable, and refuse two that then look the same."""
    shown = tuple(printable(str(name)) for name in made)
    if len(set(shown)) < len(shown):
        same = next(name for name in shown if shown.count(name) > 1)
        raise InputError(
            f"partition.column={column!r}: two names are both written {same!r}; allowed: names that differ"
        )
    return shown
