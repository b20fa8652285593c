"""What the training examples of a data set are, counted without decoding them."""

from dataclasses import dataclass

import numpy as np

from fedfisher_core.data.columns import Table, whole_numbers
from fedfisher_core.data.partitions import Indices
from fedfisher_core.data.sampling import ALL, Sample
from fedfisher_core.data.sources import Source, windows_of
from fedfisher_core.errors import InputError


@dataclass(frozen=True)
class Counts:
    """The training examples of a data set.

    Args:
        labels: how many have each label, shape (classes,).
        groups: how many values the column that says who made them has; None without such a column.
    """

    labels: Indices
    groups: int | None = None


def count_training(source: Source, *, sample: Sample = ALL, group_column: str | None = None) -> Counts | None:
    """Count the training examples that are used.

    Args:
        source: of the data set.
        sample: which of them are used.
        group_column: a column that says who made each of them.

    Returns:
        The counts; None for what is still to be fetched from the hub.

    Raises:
        InputError: a file can't be read, a column is missing or holds something else, or there are too few examples.
    """
    if source.folder is None:
        return None
    # Importing it takes a while, which listings of data sets should not spend.
    import pyarrow.parquet

    spec = source.spec
    where = f"split 'train' of data set {spec.name!r}"
    try:
        if (windows := windows_of(source)) is not None:
            schema, read = windows["train"].schema, windows["train"].select
        else:
            file = pyarrow.parquet.ParquetFile(source.folder / "train.parquet")
            schema, read = file.schema_arrow, file.read
        columns = Table(schema.empty_table(), where)
        label = columns.column(spec.label_columns, "label")
        groups = None if group_column is None else columns.column((group_column,), "partition")
        rows = read([label] if groups is None else [label, groups])
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"data set {spec.name!r} in {source.folder} can't be read: {error}") from error
    try:
        used, _ = sample.draw(len(rows))
    except InputError as error:
        raise InputError(f"data set {spec.name!r}: {error}") from error
    labels = whole_numbers(Table(rows, where), label).numpy()[used]
    known = labels[(labels >= 0) & (labels < spec.classes)]
    return Counts(
        labels=np.bincount(known, minlength=spec.classes),
        groups=None if groups is None else len(rows[groups].take(used).unique()),
    )
