"""Labels of a data set, matched by name over all splits and parts, and the makers of its examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedfisher_core.data.columns import Codes, coded, holds_integers, holds_texts, names, value_type
from fedfisher_core.data.natural import coarse_of_labels
from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.data.tables import Table
from fedfisher_core.engine.errors import InputError, printable, shortened

_MOST_LISTED = 20
LONGEST_NAME = 200


@dataclass(frozen=True)
class Labels:
    """The labels of a data set.

    Args:
        train: of the training examples, shape (training examples,).
        test: of the test examples, shape (test examples,).
        names: of all classes, fit to be printed.
        notes: sentences on how names and numbers were matched, if that is not obvious.
    """

    train: Codes
    test: Codes
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Column:
    """The labels of one split as its file holds them.

    Args:
        codes: for each row an index into the names, or the number itself.
        names: from the metadata or, for texts, the ones found, in sorted order; None for numbers alone.
    """

    codes: Codes
    names: tuple[str, ...] | None
    kind: str
    texts: bool = False


def read_labels(train: Table, test: Table, spec: DatasetSpec) -> Labels:
    """Read the labels of both splits.

    Whole numbers are labels as they are. If the metadata of a split name the classes, as the hub's do, or if labels are
    texts, the classes of all splits are matched by name.

    Raises:
        InputError: a column is missing, is empty or holds something else; a label is missing or out of range; or the
            splits do not name the same classes.
    """
    found = {table.where: _read(table, spec) for table in (train, test)}
    listed = {where: one.names for where, one in found.items() if one.names is not None}
    numbers = next((where for where, one in found.items() if one.names is None), None)
    if not listed:
        own, tested = (one.codes for one in found.values())
        return Labels(train=own, test=tested, names=tuple(map(str, range(spec.classes))))
    named, texts = next(iter(listed)), next((where for where, one in found.items() if one.texts), None)
    if numbers is not None:
        _require_places(found[named], named, found[numbers], numbers)
    names = (_sorted_names if all(found[where].texts for where in listed) else matched)(listed, spec)
    places = {name: place for place, name in enumerate(names)}
    own, tested = (
        one.codes if one.names is None else np.array([places[name] for name in one.names], dtype=np.int64)[one.codes]
        for one in found.values()
    )
    shown = tuple(map(printable, names))
    notes = []
    if texts is not None:
        notes.append(f"Labels of {spec.name} are texts, numbered in this order: {_listed(shown)}.")
    elif numbers is not None:
        notes.append(f"Only the {named} names classes; the other's labels number them in this order: {_listed(shown)}.")
    elif len(set(listed.values())) > 1:
        notes.append(f"The splits of {spec.name} list their classes in different orders; labels are matched by name.")
    return Labels(train=own, test=tested, names=shown, notes=tuple(notes))


def matched(listed: Mapping[str, Sequence[str]], spec: DatasetSpec) -> tuple[str, ...]:
    """Put the names of classes of several sources into one order: that of the first source, then what later ones add.

    Args:
        listed: the names in each source, by the source's name in messages.

    Raises:
        InputError: together they are more or fewer than the classes of the data set.
    """
    names = tuple(dict.fromkeys(name for own in listed.values() for name in own))
    if len(names) != spec.classes:
        each = "; ".join(f"{where}: {_listed(list(map(repr, own)))}" for where, own in listed.items())
        raise InputError(
            f"data set {spec.name!r} has {spec.classes} classes, but {len(names)} are named ({each}); allowed: the "
            f"same {spec.classes} names everywhere, in any order"
        )
    return names


def joined_labels(parts: Mapping[str, Labels], spec: DatasetSpec) -> Labels:
    """Join the labels of a data set's parts, given by name; the names of classes are in the order of the first part.

    Raises:
        InputError: the parts do not name the same classes.
    """
    names = matched({f"part {part!r}": own.names for part, own in parts.items()}, spec)
    places = {name: place for place, name in enumerate(names)}
    orders = [np.array([places[name] for name in own.names], dtype=np.int64) for own in parts.values()]
    notes = [note for own in parts.values() for note in own.notes]
    if len({own.names for own in parts.values()}) > 1:
        notes.append(f"The parts of {spec.name} list their classes in different orders; labels are matched by name.")
    each = list(zip(orders, parts.values(), strict=True))
    return Labels(
        train=np.concatenate([order[own.train] for order, own in each]),
        test=np.concatenate([order[own.test] for order, own in each]),
        names=names,
        notes=tuple(notes),
    )


def read_coarse(train: Table, labels: Codes, spec: DatasetSpec) -> tuple[int, ...]:
    """Read the coarse label of each label: whole numbers, or texts numbered in sorted order; -1 without examples.

    Raises:
        InputError: there is no such column, it holds something else, or a label has two coarse labels.
    """
    coarse = _cells(train, train.column(spec.coarse_columns, "coarse label")).codes
    return coarse_of_labels(labels, coarse, spec.classes, where=train.where)


def unseen_classes(names: Sequence[str], train: Codes, test: Codes) -> str:
    """Say in a sentence which classes have test examples but no training examples; empty if there are none."""
    counts = np.bincount(test, minlength=len(names))
    unseen = np.setdiff1d(np.unique(test), train)
    if not len(unseen):
        return ""
    each = [f"{names[label]} ({counts[label]:,})" for label in unseen]
    return (
        f"{counts[unseen].sum():,} of {len(test):,} test examples are of classes without any training example: "
        f"{_listed(each)}."
    )


def _read(table: Table, spec: DatasetSpec) -> _Column:
    """Read the labels of one split, and check that each is a class."""
    column = table.column(spec.label_columns, "label")
    if table.size == 0:
        raise InputError(f"{table.where} is empty")
    found = _cells(table, column)
    if found.texts:
        return found
    declared = declared_names(table, column)
    classes = spec.classes if declared is None else len(declared)
    wrong = np.flatnonzero((found.codes < 0) | (found.codes >= classes))
    if len(wrong):
        row = int(wrong[0])
        # The code of a number that needs all 64 bits is another number.
        label = table.cells(column)[row].as_py()
        named = "" if declared is None or classes == spec.classes else f", the {classes} classes that are named"
        raise table.refuse(row, f"label {label} is out of range; allowed: 0 to {classes - 1}{named}")
    return _Column(found.codes, declared, found.kind)


def _cells(table: Table, column: str) -> _Column:
    cells = table.cells(column)
    kind = value_type(cells)
    texts = holds_texts(kind)
    if not (texts or holds_integers(kind)):
        given = next((one.as_py() for one in cells[:_MOST_LISTED] if one.is_valid), None)
        such = "" if given is None else f", such as {shortened(repr(given), longest=40)}"
        raise InputError(
            f"{table.where}: column {column!r} holds {shortened(str(kind))}{such}; allowed: whole numbers from 0, or "
            "texts, in every row"
        )
    codes, values = coded(table, column, cells, "label")
    if not texts:
        # A number beyond int64 is out of range, and so is -1.
        numbers = [value if value < 2**63 else -1 for value in values]
        return _Column(np.array(numbers, dtype=np.int64)[codes], None, str(kind))
    for place, name in enumerate(values):
        if len(name) > LONGEST_NAME:
            row = int(np.flatnonzero(codes == place)[0])
            raise table.refuse(row, f"the label has {len(name):,} characters; allowed: up to {LONGEST_NAME}")
    return _Column(codes, tuple(values), str(kind), texts=True)


def declared_names(table: Table, column: str) -> tuple[str, ...] | None:
    """Read the names that the metadata of a split give the numbers of a column."""
    if column not in table.features:
        return None
    described: Any = table.features[column]
    if not isinstance(described, dict) or not isinstance(described.get("_type"), str):
        raise InputError(
            f"{table.where}: the metadata of column {column!r} are {shortened(repr(described))}; allowed: a type"
        )
    names: Any = described.get("names")
    if described["_type"] != "ClassLabel" or names is None:
        return None
    if isinstance(names, list) and all(isinstance(one, str) and one.strip() for one in names):
        long = next((one for one in names if len(one) > LONGEST_NAME), None)
        if long is None and len(set(names)) == len(names) > 0:
            return tuple(names)
    raise InputError(
        f"{table.where}: the metadata of column {column!r} name the classes {shortened(repr(names))}; allowed: a list "
        f"of texts that differ, each of up to {LONGEST_NAME} characters"
    )


def _require_places(named: _Column, where: str, numbers: _Column, other: str) -> None:
    """Refuse numbers in one split if the names in the other do not say which number is which class."""
    assert named.names is not None
    if named.texts:
        raise InputError(
            f"labels are {named.kind} in {where}, and {numbers.kind} in {other}; allowed: one type, or names of the "
            "classes in the metadata of both"
        )
    numerals = [str(place) for place in range(len(named.names))]
    if sorted(named.names) == sorted(numerals) and list(named.names) != numerals:
        raise InputError(
            f"{where} names its classes {_listed(list(map(repr, named.names)))}, and {other} has numbers without "
            "names, which may mean positions or names; allowed: names in the metadata of both"
        )


def _sorted_names(listed: Mapping[str, Sequence[str]], spec: DatasetSpec) -> tuple[str, ...]:
    """Name the classes of a data set whose labels are all texts; some classes may have no examples."""
    names = sorted({name for own in listed.values() for name in own})
    if len(names) > spec.classes:
        raise InputError(
            f"data set {spec.name!r} has {spec.classes} classes, but {len(names):,} texts as labels: "
            f"{_listed(list(map(repr, names)))}; allowed: up to {spec.classes}"
        )
    return tuple(names + [f"(class {place} without examples)" for place in range(len(names), spec.classes)])


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_LISTED:,} more" if len(names) > _MOST_LISTED else ""
    return f"{', '.join(names[:_MOST_LISTED])}{more}"


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
