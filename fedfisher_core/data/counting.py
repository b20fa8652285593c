"""What the training examples of a data set are, counted without decoding them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedfisher_core.data.columns import Table, whole_numbers
from fedfisher_core.data.fetch import SPLITS
from fedfisher_core.data.makers import Makers, count_makers, maker_column, makers_of_parts, read_makers
from fedfisher_core.data.pachinko import coarse_of_labels
from fedfisher_core.data.partitions import Indices
from fedfisher_core.data.sampling import ALL, Sample
from fedfisher_core.data.sources import Source, windows_of
from fedfisher_core.errors import InputError


@dataclass(frozen=True)
class Counts:
    """The training examples of a data set.

    Args:
        labels: how many have each label, shape (classes,).
        groups: how many each maker made that the column names, 0 for one of test examples alone; None without such a
            column.
        coarse: the coarse label of each label; empty where they are not asked for.
    """

    labels: Indices
    groups: Mapping[str, int] | None = None
    coarse: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Columns:
    """One split of a data set that is not made of others: its schema, its number of rows, and how to read columns."""

    schema: Any
    rows: int
    read: Callable[[Sequence[str]], Any]


@dataclass(frozen=True)
class _Read:
    """Columns of all training examples, and the number of test examples."""

    labels: Indices
    tested: int
    makers: Makers | None = None
    coarse: tuple[int, ...] = ()


def count_training(
    source: Source, *, sample: Sample = ALL, group_column: str | None = None, coarse: bool = False
) -> Counts | None:
    """Count the training examples that are used.

    Args:
        source: of the data set.
        sample: which of them are used.
        group_column: a column that says who made each of them.
        coarse: whether coarse labels are asked for as well.

    Returns:
        The counts; None for what is still to be fetched from the hub.

    Raises:
        InputError: a file can't be read, a column is missing or holds something else, or there are too few examples.
    """
    read = _read(source, group_column, coarse)
    if read is None:
        return None
    spec = source.spec
    try:
        used, apart = sample.draw(read.labels)
        groups = None
        if read.makers is not None:
            train, test = read.makers.train, read.makers.test
            tested = train[apart] if sample.held_out else test
            groups = count_makers(read.makers.names, train[used], tested)
    except InputError as error:
        raise InputError(f"data set {spec.name!r}: {error}") from error
    labels = read.labels[used]
    known = labels[(labels >= 0) & (labels < spec.classes)]
    return Counts(labels=np.bincount(known, minlength=spec.classes), groups=groups, coarse=read.coarse)


def _read(source: Source, group_column: str | None, coarse: bool) -> _Read | None:
    if source.parts:
        return _read_parts(source, group_column)
    if source.folder is None:
        return None
    # Importing it takes a while, which listings of data sets should not spend.
    import pyarrow

    spec = source.spec
    try:
        columns = _columns(source)
        empty = {one: _table(split.schema.empty_table(), one, spec.name) for one, split in columns.items()}
        label = empty["train"].column(spec.label_columns, "label")
        wanted = [label, *([] if group_column is None else [maker_column(empty["train"], group_column)])]
        above = empty["train"].column(spec.coarse_columns, "coarse label") if coarse else None
        rows = _table(columns["train"].read([*wanted, *([above] if above else [])]), "train", spec.name)
        makers = None
        if group_column is not None:
            needed = spec.impute is not None or group_column in empty["test"].rows.column_names
            there = [maker_column(empty["test"], group_column)] if needed else []
            tests = _table(columns["test"].read(there), "test", spec.name)
            makers = read_makers(rows, tests, group_column, needs_test=spec.impute is not None)
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"data set {spec.name!r} in {source.folder} can't be read: {error}") from error
    labels = whole_numbers(rows, label).numpy()
    return _Read(
        labels=labels,
        tested=columns["test"].rows,
        makers=makers,
        coarse=coarse_of_labels(labels, whole_numbers(rows, above).numpy(), spec.classes, where=rows.where)
        if above
        else (),
    )


def _columns(source: Source) -> dict[str, _Columns]:
    import pyarrow.parquet

    if (windows := windows_of(source)) is not None:
        return {one: _Columns(table.schema, len(table), table.select) for one, table in windows.items()}
    assert source.folder is not None
    files = {one: pyarrow.parquet.ParquetFile(source.folder / f"{one}.parquet") for one in SPLITS}
    return {one: _Columns(file.schema_arrow, file.metadata.num_rows, file.read) for one, file in files.items()}


def _table(rows: Any, split: str, dataset: str) -> Table:
    return Table(rows, f"split {split!r} of data set {dataset!r}")


def _read_parts(source: Source, group_column: str | None) -> _Read | None:
    parts = [_read(part, None, False) for part in source.parts]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    train, test = [len(part.labels) for part in known], [part.tested for part in known]
    makers = None if group_column is None else makers_of_parts(source.spec, group_column, train, test)
    return _Read(labels=np.concatenate([part.labels for part in known]), tested=sum(test), makers=makers)
