"""Who made the examples of a data set, as a column of its files says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.data.columns import Table, names
from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.errors import InputError

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Makers:
    """Who made the examples of both splits.

    Args:
        names: of the makers of training examples, in their order, then of those of test examples alone.
        train: the place of each training example's maker among the names, shape (training examples,).
        test: likewise, shape (test examples,); None where the test split does not say.
    """

    names: tuple[str, ...]
    train: Codes
    test: Codes | None


def read_makers(train: Table, test: Table, column: str, *, needs_test: bool) -> Makers:
    """Read who made each example.

    Args:
        train: the training split.
        test: the test split, which may lack the column.
        column: names the maker.
        needs_test: whether the test split must have it as well.

    Returns:
        The makers.

    Raises:
        InputError: the column is missing, or a name is missing in it.
    """
    made = names(train, maker_column(train, column))
    places = {name: place for place, name in enumerate(sorted(set(made)))}
    tested = None
    if needs_test or column in test.rows.column_names:
        tested = names(test, maker_column(test, column))
        for name in sorted(set(tested) - places.keys()):
            places[name] = len(places)
    return Makers(
        names=tuple(map(str, places)),
        train=_codes(made, places),
        test=None if tested is None else _codes(tested, places),
    )


def maker_column(table: Table, column: str) -> str:
    """Check that a split has the column that the settings name.

    Args:
        table: the split, with all its columns.
        column: that is asked for.

    Returns:
        Its name.

    Raises:
        InputError: it is missing.
    """
    if column not in table.rows.column_names:
        allowed = ", ".join(map(str, table.rows.column_names))
        raise InputError(f"partition.column={column!r}: {table.where} has no such column; allowed: {allowed}")
    return column


def makers_of_parts(spec: DatasetSpec, column: str, train: Sequence[int], test: Sequence[int]) -> Makers:
    """Say of which part each example of a data set is that is made of others.

    Args:
        spec: the data set.
        column: that is asked for.
        train: training examples of each part.
        test: test examples of each part.

    Returns:
        The parts, as makers.

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
    """Count each maker's training examples.

    Args:
        known: names of the makers.
        train: makers of the training examples that are used.
        test: makers of the test examples; None where they are not known.

    Returns:
        Training examples by the maker's name, of those that have any example; 0 for one of test examples alone.
    """
    counts = np.bincount(train, minlength=len(known))
    present = counts > 0
    if test is not None:
        present[test] = True
    return {name: int(count) for name, count, there in zip(known, counts, present, strict=True) if there}


def _codes(made: Sequence[Any], places: Mapping[Any, int]) -> Codes:
    return np.array([places[name] for name in made], dtype=np.int64)
