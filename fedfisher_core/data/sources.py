"""Where a data set comes from: a folder of files, the Hugging Face hub, the embedded digits, or other data sets."""

import glob
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedfisher_core.data.columns import Table, tokens, vectors, whole_numbers
from fedfisher_core.data.fetch import PROJECT_DATA_DIR, SPLITS, fetch
from fedfisher_core.data.hub import load_from_hub
from fedfisher_core.data.makers import Codes, makers_of_parts, read_makers
from fedfisher_core.data.pachinko import coarse_of_labels
from fedfisher_core.data.pictures import ImageSizes, images
from fedfisher_core.data.plays import CHARACTER_NAMES, read_plays
from fedfisher_core.data.specs import DATA_DIR_VARIABLE, EMBEDDED, DatasetSpec, datasets
from fedfisher_core.data.tensors import Dataset, Split
from fedfisher_core.errors import InputError
from fedfisher_core.layouts import Images, Tokens, Vectors
from fedfisher_core.scratch import scratch


@dataclass(frozen=True)
class Source:
    """Where one data set is read from.

    Args:
        spec: the data set.
        folder: holds train.parquet and test.parquet, or the text; None for the hub, and for a data set that is made of
            others.
        identity: changes whenever the content may have changed.
        parts: where these others are read from.
    """

    spec: DatasetSpec
    folder: Path | None
    identity: str
    parts: "tuple[Source, ...]" = ()


def find_source(name: str) -> Source:
    """Decide where a data set is read from, without reading it.

    The folder named by FEDFISHER_DATA_DIR comes first, then the project's own `data` folder (which `dvc pull` and
    `fedfisher data fetch` fill), then the hub. The embedded set is put into `data` where it is missing. Of a data set
    that is made of others, each is found in this way.

    Args:
        name: the data set's name.

    Returns:
        The source.

    Raises:
        InputError: the name is unknown, FEDFISHER_DATA_DIR is no folder, a file is missing in a folder, or a data set
            that the hub does not have has none; data sets that one is made of don't fit together.
    """
    spec = datasets.get(name)
    if spec.parts:
        return _joined_source(spec)
    roots = [PROJECT_DATA_DIR]
    if named := os.environ.get(DATA_DIR_VARIABLE):
        if not Path(named).is_dir():
            raise InputError(f"{DATA_DIR_VARIABLE}={named!r} is not a folder")
        roots.insert(0, Path(named))
    for root in roots:
        folder = root / spec.folder
        if folder.is_dir():
            return _folder_source(spec, folder)
    if name == EMBEDDED:
        return _folder_source(spec, fetch(name))
    if spec.hub is None:
        raise InputError(
            f"data set {name!r} names no source on the hub and has no folder; set {DATA_DIR_VARIABLE} to a folder with "
            f"{' and '.join(spec.files)}"
        )
    return Source(spec=spec, folder=None, identity=f"hub:{spec.hub}")


def _joined_source(spec: DatasetSpec) -> Source:
    parts = tuple(find_source(name) for name in spec.parts)
    for part in parts:
        kinds = part.spec.classes, type(part.spec.inputs)
        if kinds != (spec.classes, Images) or part.parts:
            raise InputError(
                f"data set {spec.name!r}: its part {part.spec.name!r} has {part.spec.classes} classes, "
                f"{part.spec.inputs}; allowed: images of {spec.classes} classes, from files of their own"
            )
    identity = ";".join(f"{part.spec.name}={part.identity}" for part in parts)
    return Source(spec=spec, folder=None, identity=f"parts:{identity}", parts=parts)


def _folder_source(spec: DatasetSpec, folder: Path) -> Source:
    if spec.plays is not None:
        text = folder / Path(spec.plays).name
        if not text.is_file():
            raise InputError(f"data set {spec.name!r}: the text is missing, no file {text}")
        return Source(spec=spec, folder=folder, identity=f"text:{_file_digest(text)}")
    for split in SPLITS:
        if not (folder / f"{split}.parquet").is_file():
            raise InputError(f"data set {spec.name!r}: split {split!r} is missing, no file {folder / split}.parquet")
    digests = [_file_digest(folder / f"{split}.parquet") for split in SPLITS]
    return Source(spec=spec, folder=folder, identity="parquet:" + ":".join(digests))


def read_dataset(source: Source, *, group_column: str | None = None, sizes: ImageSizes = "same") -> Dataset:
    """Read and decode a data set.

    Args:
        source: where from.
        group_column: a column that says who made each example, which the test split may lack.
        sizes: whether images may differ in size among themselves, before they are brought to the data set's.

    Returns:
        The decoded examples, labels and groups.

    Raises:
        InputError: the hub can't be reached, a column is missing or holds something else, an example can't be read, a
            label is out of range, images differ in size that may not, or the maker of a test example made no training
            example.
    """
    if source.parts:
        return _read_parts(source, group_column, sizes)
    spec = source.spec
    with scratch() as cache:
        tables = _open(source, str(cache))
        train, test = (Table(tables[split], f"split {split!r} of data set {spec.name!r}") for split in SPLITS)
        makers = None
        if group_column is not None:
            makers = read_makers(train, test, group_column, needs_test=spec.impute is not None)
        labels = [_labels(table, spec) for table in (train, test)]
        inputs = _inputs((train, test), spec, sizes)
        groups = (None, None) if makers is None else (makers.train, makers.test)
        decoded = [Split(*parts) for parts in zip(inputs, labels, map(_codes, groups), strict=True)]
        return Dataset(
            spec=spec,
            train=decoded[0],
            test=decoded[1],
            class_names=_class_names(train, spec),
            group_names=() if makers is None else makers.names,
            coarse=_coarse(train, spec),
        )


def _read_parts(source: Source, group_column: str | None, sizes: ImageSizes) -> Dataset:
    """Read the data sets that one is made of, and put them one behind the other."""
    spec = source.spec
    brought = [replace(part, spec=replace(part.spec, inputs=spec.inputs)) for part in source.parts]
    read = [read_dataset(part, sizes=sizes) for part in brought]
    for part in read:
        if part.class_names != read[0].class_names:
            raise InputError(
                f"data set {spec.name!r}: its part {part.spec.name!r} names the classes {list(part.class_names)}, "
                f"{read[0].spec.name!r} {list(read[0].class_names)}; allowed: the same names in the same order"
            )
    train, test = [part.train for part in read], [part.test for part in read]
    makers = None
    if group_column is not None:
        makers = makers_of_parts(spec, group_column, list(map(len, train)), list(map(len, test)))
    return Dataset(
        spec=spec,
        train=_behind_each_other(train, None if makers is None else makers.train),
        test=_behind_each_other(test, None if makers is None else makers.test),
        class_names=read[0].class_names,
        group_names=() if makers is None else makers.names,
    )


def _behind_each_other(splits: list[Split], groups: Codes | None) -> Split:
    return Split(
        inputs=torch.cat([one.inputs for one in splits]),
        labels=torch.cat([one.labels for one in splits]),
        groups=_codes(groups),
    )


def _codes(groups: Codes | None) -> Tensor | None:
    return None if groups is None else torch.from_numpy(groups)


def windows_of(source: Source) -> dict[str, Any] | None:
    """Cut the plays that a data set is made of into windows.

    Args:
        source: where from.

    Returns:
        By split, a table of pyarrow; None for a data set that is not made of plays.

    Raises:
        InputError: see `read_plays`.
    """
    spec = source.spec
    if spec.plays is None or source.folder is None:
        return None
    assert isinstance(spec.inputs, Tokens)
    return read_plays(source.folder / Path(spec.plays).name, spec.inputs)


def _open(source: Source, cache: str) -> dict[str, Any]:
    import datasets as hub

    hub.disable_progress_bars()
    spec = source.spec
    if (windows := windows_of(source)) is not None:
        characters = hub.ClassLabel(names=list(CHARACTER_NAMES))
        return {split: hub.Dataset(table).cast_column("label", characters) for split, table in windows.items()}
    if source.folder is not None:
        # The library takes a path for a pattern.
        files = {split: glob.escape(str(source.folder / f"{split}.parquet")) for split in SPLITS}
        try:
            # One by one: read together, a split is given every column that the other has, without content. The
            # library's general loader would tell its makers' server of each.
            return {
                split: hub.Dataset.from_parquet(file, split=hub.NamedSplit(split), cache_dir=cache)
                for split, file in files.items()
            }
        except (hub.exceptions.DatasetGenerationError, OSError, ValueError) as error:
            reason = error.__cause__ or error
            raise InputError(f"data set {spec.name!r} in {source.folder} can't be read: {reason}") from error
    loaded = load_from_hub(spec)
    return {"train": loaded["train"], "test": loaded[spec.hub_test_split]}


def _labels(table: Table, spec: DatasetSpec) -> Tensor:
    label_column = table.column(spec.label_columns, "label")
    if len(table.rows) == 0:
        raise InputError(f"{table.where} is empty")
    labels = whole_numbers(table, label_column)
    wrong = ((labels < 0) | (labels >= spec.classes)).nonzero().flatten()
    if len(wrong):
        row = int(wrong[0])
        raise table.refuse(row, f"label {int(labels[row])} is out of range; allowed: 0 to {spec.classes - 1}")
    return labels


def _coarse(table: Table, spec: DatasetSpec) -> tuple[int, ...]:
    """Read which coarse label stands for each label, where the file says it."""
    column = next((name for name in spec.coarse_columns if name in table.rows.column_names), None)
    if column is None:
        return ()
    labels = whole_numbers(table, table.column(spec.label_columns, "label"))
    coarse = whole_numbers(table, column)
    return coarse_of_labels(labels.numpy(), coarse.numpy(), spec.classes, where=table.where)


def _inputs(tables: Sequence[Table], spec: DatasetSpec, sizes: ImageSizes) -> list[Tensor]:
    layout = spec.inputs
    match layout:
        case Images():
            return images(tables, spec, sizes=sizes)
        case Vectors():
            missing = spec.impute is not None
            return [vectors(table, spec.feature_columns, layout, may_miss=missing) for table in tables]
        case Tokens():
            return [tokens(table, table.column(spec.token_columns, "token"), layout) for table in tables]


def _class_names(table: Table, spec: DatasetSpec) -> tuple[str, ...]:
    names = getattr(table.rows.features[table.column(spec.label_columns, "label")], "names", None)
    return tuple(names) if names and len(names) == spec.classes else tuple(str(i) for i in range(spec.classes))


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
