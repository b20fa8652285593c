"""Where a data set comes from: a folder of Parquet files, the Hugging Face hub, or the embedded digits."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedfisher_core.data.fetch import PROJECT_DATA_DIR, SPLITS, fetch
from fedfisher_core.data.specs import DatasetSpec, datasets
from fedfisher_core.data.tensors import Split
from fedfisher_core.errors import InputError

DATA_DIR_VARIABLE = "FEDFISHER_DATA_DIR"


@dataclass(frozen=True)
class Source:
    """Where one data set is read from.

    Args:
        spec: the data set.
        folder: holds train.parquet and test.parquet; None for the hub.
        identity: changes whenever the content may have changed.
    """

    spec: DatasetSpec
    folder: Path | None
    identity: str


@dataclass(frozen=True)
class Dataset:
    """A decoded data set.

    Args:
        spec: what it is.
        train: its training images.
        test: its test images.
        class_names: one a label.
    """

    spec: DatasetSpec
    train: Split
    test: Split
    class_names: tuple[str, ...]


def find_source(name: str) -> Source:
    """Decide where a data set is read from, without reading it.

    The folder named by FEDFISHER_DATA_DIR comes first, then the project's own `data` folder (which `dvc pull` and
    `fedfisher data fetch` fill), then the hub. The embedded set is put into `data` where it is missing.

    Args:
        name: the data set's name.

    Returns:
        The source.

    Raises:
        InputError: the name is unknown, FEDFISHER_DATA_DIR is no folder, or a split is missing in a folder.
    """
    spec = datasets.get(name)
    roots = [PROJECT_DATA_DIR]
    if named := os.environ.get(DATA_DIR_VARIABLE):
        if not Path(named).is_dir():
            raise InputError(f"{DATA_DIR_VARIABLE}={named!r} is not a folder")
        roots.insert(0, Path(named))
    for root in roots:
        folder = root / name
        if folder.is_dir():
            return _folder_source(spec, folder)
    if spec.hub is None:
        return _folder_source(spec, fetch(name))
    return Source(spec=spec, folder=None, identity=f"hub:{spec.hub}")


def _folder_source(spec: DatasetSpec, folder: Path) -> Source:
    for split in SPLITS:
        if not (folder / f"{split}.parquet").is_file():
            raise InputError(f"data set {spec.name!r}: split {split!r} is missing, no file {folder / split}.parquet")
    digests = [_file_digest(folder / f"{split}.parquet") for split in SPLITS]
    return Source(spec=spec, folder=folder, identity="parquet:" + ":".join(digests))


def read_dataset(source: Source, *, group_column: str | None = None) -> Dataset:
    """Read and decode a data set.

    Args:
        source: where from.
        group_column: a column that says who made each training example.

    Returns:
        The decoded images, labels and groups.

    Raises:
        InputError: the hub can't be reached, a column is missing, an image can't be read or a label is out of range.
    """
    with tempfile.TemporaryDirectory(prefix="fedfisher-") as cache:
        tables = _open(source, cache)
        train = _decode(tables["train"], source, "train", group_column)
        test = _decode(tables["test"], source, "test", None)
        names = _class_names(tables["train"], source.spec)
    return Dataset(spec=source.spec, train=train, test=test, class_names=names)


def _open(source: Source, cache: str) -> dict[str, Any]:
    import datasets as hub

    hub.disable_progress_bars()
    spec = source.spec
    if source.folder is not None:
        files = {split: str(source.folder / f"{split}.parquet") for split in SPLITS}
        try:
            return dict(hub.load_dataset("parquet", data_files=files, cache_dir=cache))
        except (hub.exceptions.DatasetGenerationError, OSError, ValueError) as error:
            reason = error.__cause__ or error
            raise InputError(f"data set {spec.name!r} in {source.folder} can't be read: {reason}") from error
    try:
        loaded = hub.load_dataset(spec.hub, spec.hub_config)
        return {"train": loaded["train"], "test": loaded[spec.hub_test_split]}
    except (OSError, ValueError, hub.exceptions.DatasetNotFoundError) as error:
        raise InputError(
            f"data set {spec.name!r} can't be fetched from the hub ({type(error).__name__}: {error}). Set "
            f"{DATA_DIR_VARIABLE} to a folder with {spec.name}/train.parquet and {spec.name}/test.parquet, or use "
            f"data.dataset=mnist5k, which needs no network"
        ) from error


def _column(table: Any, names: tuple[str, ...], what: str, where: str) -> str:
    for name in names:
        if name in table.column_names:
            return name
    raise InputError(f"{where} has no {what} column {' or '.join(map(repr, names))}; it has {table.column_names}")


def _decode(table: Any, source: Source, split: str, group_column: str | None) -> Split:
    spec = source.spec
    where = f"split {split!r} of data set {spec.name!r}"
    image_column = _column(table, spec.image_columns, "image", where)
    label_column = _column(table, spec.label_columns, "label", where)
    if len(table) == 0:
        raise InputError(f"{where} is empty")
    labels = _whole_numbers(table, label_column, where)
    wrong = ((labels < 0) | (labels >= spec.classes)).nonzero().flatten()
    if len(wrong):
        row = int(wrong[0])
        raise InputError(
            f"{where}, row {row}: label {int(labels[row])} is out of range; allowed: 0 to {spec.classes - 1}"
        )
    groups = None
    if group_column is not None:
        column = _column(table, (group_column,), "partition", where)
        _, codes = np.unique(np.asarray(table[column][:]), return_inverse=True)
        groups = torch.from_numpy(codes.astype(np.int64))
    images = torch.empty((len(labels), spec.channels, spec.size, spec.size), dtype=torch.uint8)
    for row, image in enumerate(_images(table, image_column, spec, where)):
        images[row] = image
    return Split(images=images, labels=labels, groups=groups)


def _whole_numbers(table: Any, column: str, where: str) -> Tensor:
    values = np.asarray(table[column][:])
    if values.dtype.kind not in "iu":
        raise InputError(f"{where}: column {column!r} must hold whole numbers, and in every row")
    return torch.from_numpy(values.astype(np.int64))


def _images(table: Any, column: str, spec: DatasetSpec, where: str) -> Iterator[Tensor]:
    import datasets as hub
    import pyarrow
    from PIL import Image, UnidentifiedImageError

    mode = "L" if spec.channels == 1 else "RGB"
    try:
        raw = table.select_columns([column]).cast_column(column, hub.Image(decode=False))
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"{where}: column {column!r} holds no images: {error}") from error
    for row, record in enumerate(raw):
        try:
            with Image.open(_stream(record[column])) as image:
                pixels = image.convert(mode)
                if pixels.size != (spec.size, spec.size):
                    pixels = pixels.resize((spec.size, spec.size), Image.Resampling.BILINEAR)
                array = np.array(pixels, dtype=np.uint8)
        except (UnidentifiedImageError, OSError, SyntaxError, TypeError) as error:
            raise InputError(f"{where}, row {row}: the image can't be read: {error}") from error
        yield torch.from_numpy(array.reshape(spec.size, spec.size, spec.channels)).permute(2, 0, 1)


def _stream(record: dict[str, Any] | None) -> Any:
    import io

    if record is None or (record["bytes"] is None and record["path"] is None):
        raise TypeError("the cell is empty")
    return io.BytesIO(record["bytes"]) if record["bytes"] is not None else record["path"]


def _class_names(table: Any, spec: DatasetSpec) -> tuple[str, ...]:
    feature = table.features[_column(table, spec.label_columns, "label", spec.name)]
    names = getattr(feature, "names", None)
    return tuple(names) if names and len(names) == spec.classes else tuple(str(i) for i in range(spec.classes))


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
