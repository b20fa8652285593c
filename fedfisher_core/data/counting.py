"""Counts of a data set's training examples, without decoding them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedfisher_core.data.labels import (
    Labels,
    Makers,
    count_makers,
    joined_labels,
    makers_of_parts,
    read_coarse,
    read_labels,
    read_makers,
    unseen_classes,
)
from fedfisher_core.data.partitions import Indices
from fedfisher_core.data.sampling import ALL, Sample
from fedfisher_core.data.sources import Source, open_splits, require_inputs
from fedfisher_core.engine.errors import InputError


@dataclass(frozen=True)
class Counts:
    """The training examples of a data set.

    Args:
        labels: number of examples with each label, shape (classes,).
        groups: number of examples by the maker's name, 0 for one of test examples alone; None without a column of
            makers.
        coarse: the coarse label of each label; empty if they are not asked for.
        unseen: says which classes have test examples alone; empty if there are none.
    """

    labels: Indices
    groups: Mapping[str, int] | None = None
    coarse: tuple[int, ...] = ()
    unseen: str = ""


@dataclass(frozen=True)
class _Read:
    labels: Labels
    makers: Makers | None = None
    coarse: tuple[int, ...] = ()


def count_training(
    source: Source, *, sample: Sample = ALL, group_column: str | None = None, coarse: bool = False
) -> Counts | None:
    """Count the training examples that are used; None if the data must still be fetched from the hub.

    Raises:
        InputError: a file can't be read, a column is missing or holds something else, or there are too few examples.
    """
    read = _read(source, group_column, coarse)
    if read is None:
        return None
    spec, train, test = source.spec, read.labels.train, read.labels.test
    try:
        used, apart = sample.draw(train)
        groups = None
        if read.makers is not None:
            tested = read.makers.train[apart] if sample.held_out else read.makers.test
            groups = count_makers(read.makers.names, read.makers.train[used], tested)
    except InputError as error:
        raise InputError(f"data set {spec.name!r}: {error}") from error
    return Counts(
        labels=np.bincount(train[used], minlength=spec.classes),
        groups=groups,
        coarse=read.coarse,
        unseen=unseen_classes(read.labels.names, train[used], train[apart] if sample.held_out else test),
    )


def _read(source: Source, group_column: str | None, coarse: bool) -> _Read | None:
    if source.parts:
        return _read_parts(source, group_column)
    if source.folder is None:
        return None
    spec = source.spec
    train, test = open_splits(source)
    labels = read_labels(train, test, spec)
    require_inputs(source)
    makers = None
    if group_column is not None:
        makers = read_makers(train, test, group_column, needs_test=spec.impute is not None)
    return _Read(labels, makers, read_coarse(train, labels.train, spec) if coarse else ())


def _read_parts(source: Source, group_column: str | None) -> _Read | None:
    parts = [_read(part, None, False) for part in source.parts]
    known = [part.labels for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    labels = joined_labels({part.spec.name: own for part, own in zip(source.parts, known, strict=True)}, source.spec)
    makers = None
    if group_column is not None:
        train, test = [len(part.train) for part in known], [len(part.test) for part in known]
        makers = makers_of_parts(source.spec, group_column, train, test)
    return _Read(labels, makers)
