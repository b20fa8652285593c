"""Sources of data sets: a folder of files, the Hugging Face hub, the embedded digits, or other data sets."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfisher_core.data.columns import require_like, tokens, vectors
from fedfisher_core.data.hub import PROJECT_DATA_DIR, SPLITS, fetch, load_from_hub, revision_of
from fedfisher_core.data.importing import open_split
from fedfisher_core.data.labels import (
    Labels,
    Makers,
    joined_labels,
    makers_of_parts,
    read_coarse,
    read_labels,
    read_makers,
)
from fedfisher_core.data.layouts import Images, Layout, Texts, Tokens, Vectors
from fedfisher_core.data.pictures import ImageSizes, images, named_files
from fedfisher_core.data.sampling import ALL, Sample
from fedfisher_core.data.speakers import read_speakers
from fedfisher_core.data.specs import DATA_DIR_VARIABLE, EMBEDDED, DatasetSpec, datasets
from fedfisher_core.data.tables import Table, may_lack, of_hub, open_file, require_file
from fedfisher_core.data.tensors import Dataset, Split
from fedfisher_core.data.texts import CHARACTER_NAMES, LongTexts, read_plays, texts, tokenise
from fedfisher_core.engine.errors import InputError


@dataclass(frozen=True)
class Source:
    """The source of one data set.

    Args:
        folder: holds train.parquet and test.parquet, or the text; None for the hub, and for a data set made of parts.
        identity: changes whenever the content may have changed.
        revision: commit on the hub; None if another source is read, or the hub does not answer.
    """

    spec: DatasetSpec
    folder: Path | None
    identity: str
    revision: str | None = None
    parts: "tuple[Source, ...]" = ()


def find_source(name: str) -> Source:
    """Decide where a data set is read from, without reading it.

    A name that is a path is the file itself. Otherwise the folder named by FEDFISHER_DATA_DIR comes first, then the
    project's own `data` folder (which `dvc pull` and `fedfisher data fetch` fill), then the hub. If `data` lacks the
    embedded set, it is written there. If a data set is made of parts, each is found in this way.

    Raises:
        InputError: the name is unknown, FEDFISHER_DATA_DIR is no folder, a folder lacks a file, a data set that is not
            on the hub has no folder, or parts don't fit together.
    """
    spec = datasets.get(name)
    if spec.parts:
        return _joined_source(spec)
    if spec.is_file:
        return Source(spec=spec, folder=Path(name).parent, identity=f"parquet:{_file_digest(Path(name))}")
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
    revision = revision_of(spec)
    identity = f"hub:{spec.hub}" if revision is None else f"hub:{spec.hub}@{revision}"
    return Source(spec=spec, folder=None, identity=identity, revision=revision)


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
        require_file(text, f"data set {spec.name!r}: the text")
        return Source(spec=spec, folder=folder, identity=f"text:{_file_digest(text)}")
    files = _files(spec, folder)
    for split, file in files.items():
        require_file(file, f"data set {spec.name!r}: split {split!r}")
    identity = "parquet:" + ":".join(map(_file_digest, files.values()))
    if isinstance(spec.inputs, Images) and (named := _named_files(spec, folder)):
        identity += f";files:{hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:16]}"
    return Source(spec=spec, folder=folder, identity=identity)


def _files(spec: DatasetSpec, folder: Path) -> dict[str, Path]:
    return {split: folder / f"{split}.parquet" for split in SPLITS}


def _named_files(spec: DatasetSpec, folder: Path) -> dict[str, str]:
    """Digest the files that hold a data set's images, if its tables only name them."""
    found: dict[str, str] = {}
    for split, file in _files(spec, folder).items():
        table = open_file(file, _where(split, spec), _row_bytes(spec))
        column = next((name for name in spec.image_columns if name in table.columns), None)
        if column is not None and may_lack(file, table.where, f"{column}.bytes"):
            found |= named_files(table, column)
    return found


@dataclass(frozen=True)
class _Part:
    """A data set with its labels, either whole or a part of another.

    Args:
        tables: by split.
    """

    spec: DatasetSpec
    tables: Mapping[str, Table]
    labels: Labels


def read_dataset(
    source: Source,
    *,
    group_column: str | None = None,
    sizes: ImageSizes = "same",
    longer: LongTexts = "cut",
    sample: Sample = ALL,
) -> Dataset:
    """Read a data set, and decode the examples that are used.

    Args:
        group_column: a column that names the maker of each example; the test split may lack it.
        sizes: whether images may differ in size before they are resized.
        sample: which examples are used; no other image is decoded.

    Raises:
        InputError: the hub can't be reached, a column is missing or holds something else, an example can't be read, a
            label is out of range, there are too few examples, images differ in size that may not, or the maker of a
            test example made no training example.
    """
    spec = source.spec
    parts = [_open_part(part, spec.inputs) for part in source.parts or (source,)]
    labels = parts[0].labels
    if source.parts:
        labels = joined_labels({part.spec.name: part.labels for part in parts}, spec)
    lengths = {split: [part.tables[split].size for part in parts] for split in SPLITS}
    makers = None if group_column is None else _makers(source, parts, lengths, group_column)
    used, apart = sample.draw(labels.train)
    chosen = [("train", used), ("train", apart) if sample.held_out else ("test", np.arange(sum(lengths["test"])))]
    of_parts = [_rows_of_parts(rows, lengths[split]) for split, rows in chosen]
    wanted = [
        [(part.tables[split], own) for (split, _), own in zip(chosen, rows, strict=True)]
        for part, rows in zip(parts, zip(*of_parts, strict=True), strict=True)
    ]
    notes = labels.notes
    if isinstance(spec.inputs, Texts):
        inputs, cut = _texts(wanted[0], spec, spec.inputs, longer)
        notes = (*notes, *cut)
    else:
        inputs = [_inputs(own, part.spec, sizes) for own, part in zip(wanted, parts, strict=True)]
    train, test = (
        Split(
            inputs=pieces[0] if len(pieces) == 1 else torch.cat(pieces),
            labels=torch.from_numpy(getattr(labels, split)[rows]),
            groups=None if makers is None or (made := getattr(makers, split)) is None else torch.from_numpy(made[rows]),
        )
        for (split, rows), pieces in zip(chosen, zip(*inputs, strict=True), strict=True)
    )
    first = parts[0].tables["train"]
    has_coarse = any(name in first.columns for name in spec.coarse_columns)
    return Dataset(
        spec=spec,
        train=train,
        test=test,
        class_names=labels.names,
        group_names=() if makers is None else makers.names,
        coarse=read_coarse(first, labels.train, spec) if has_coarse else (),
        notes=notes,
    )


def _open_part(source: Source, layout: Layout) -> _Part:
    spec = replace(source.spec, inputs=layout)
    tables = dict(zip(SPLITS, open_splits(replace(source, spec=spec)), strict=True))
    return _Part(spec=spec, tables=tables, labels=read_labels(tables["train"], tables["test"], spec))


def _makers(source: Source, parts: Sequence[_Part], lengths: Mapping[str, Sequence[int]], column: str) -> Makers:
    if source.parts:
        return makers_of_parts(source.spec, column, lengths["train"], lengths["test"])
    tables = parts[0].tables
    return read_makers(tables["train"], tables["test"], column, needs_test=source.spec.impute is not None)


def _rows_of_parts(rows: NDArray[np.int64], lengths: Sequence[int]) -> list[NDArray[np.int64]]:
    """Convert sorted rows of all parts together to rows of each part."""
    ends = np.cumsum(lengths)
    of_parts = np.split(rows, np.searchsorted(rows, ends[:-1]))
    return [own - begin for own, begin in zip(of_parts, ends - lengths, strict=True)]


def _where(split: str, spec: DatasetSpec) -> str:
    return f"split {split!r} of data set {spec.name!r}"


def _row_bytes(spec: DatasetSpec) -> int:
    return spec.inputs.size * spec.inputs.stored.itemsize


def open_splits(source: Source) -> tuple[Table, Table]:
    """Open the training and the test split of a data set that is not made of parts; no column is read yet.

    Raises:
        InputError: the hub can't be reached, a file can't be read or has too many rows; see also `read_plays` and
            `read_speakers`.
    """
    spec = source.spec
    where, row_bytes = {split: _where(split, spec) for split in SPLITS}, _row_bytes(spec)
    if source.folder is None:
        loaded = load_from_hub(spec, source.revision)
        train, test = (
            of_hub(loaded[kept], where[split], row_bytes)
            for split, kept in zip(SPLITS, ("train", spec.hub_test_split), strict=True)
        )
    elif spec.plays is not None:
        assert isinstance(spec.inputs, Tokens)
        path = source.folder / Path(spec.plays).name
        if isinstance(spec.inputs, Texts):
            rows, names = read_speakers(path, spec.classes)
        else:
            rows, names = read_plays(path, spec.inputs), list(CHARACTER_NAMES)
        labels = {"label": {"_type": "ClassLabel", "names": names}}
        train, test = (Table.of(rows[split], where[split], labels) for split in SPLITS)
    elif spec.is_file:
        train, test = (open_split(spec, split, where[split], row_bytes) for split in SPLITS)
    else:
        files = _files(spec, source.folder)
        train, test = (open_file(files[split], where[split], row_bytes) for split in SPLITS)
    return train, test


@lru_cache(maxsize=8)
def require_inputs(source: Source) -> None:
    """Check all rows of a data set in two files, except images, once a process; InputError names the first bad one."""
    spec = source.spec
    if isinstance(spec.inputs, Images) or spec.plays is not None:
        return
    tables = open_splits(source)
    if isinstance(spec.inputs, Texts):
        for table in tables:
            texts(table, table.column(spec.token_columns, "text"))
    else:
        _inputs([(table, np.arange(table.size)) for table in tables], source.spec, "same")


def _inputs(tables: Sequence[tuple[Table, NDArray[np.int64]]], spec: DatasetSpec, sizes: ImageSizes) -> list[Tensor]:
    layout = spec.inputs
    match layout:
        case Images():
            return images(tables, spec, sizes=sizes)
        case Vectors():
            missing = spec.impute is not None
            require_like([table for table, _ in tables], spec.feature_columns)
            return [vectors(table, spec.feature_columns, layout, may_miss=missing)[rows] for table, rows in tables]
        case Tokens():
            return [tokens(table, table.column(spec.token_columns, "token"), layout)[rows] for table, rows in tables]


def _texts(
    tables: Sequence[tuple[Table, NDArray[np.int64]]], spec: DatasetSpec, layout: Texts, longer: LongTexts
) -> tuple[list[list[Tensor]], list[str]]:
    """Make tokens of the texts of both splits, and say how many of them were cut."""
    made = [
        tokenise(table, table.column(spec.token_columns, "text"), layout, rows, longer=longer) for table, rows in tables
    ]
    cut, count = sum(one.cut for one in made), sum(len(one.tokens) for one in made)
    said = f"Of {count:,} texts, {cut:,} have more than {layout.length} tokens, and were cut."
    return [[one.tokens for one in made]], [said] if cut else []


def _file_digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}") from error
