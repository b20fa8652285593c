"""A table, texts or pictures of one's own as one Parquet file that `data.dataset` names."""

import csv
import io
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedfisher_core.data.columns import Names, names
from fedfisher_core.data.labels import LONGEST_NAME, declared_names
from fedfisher_core.data.layouts import Images, Layout, Texts, Vectors
from fedfisher_core.data.pictures import decode, no_bombs
from fedfisher_core.data.specs import FILE, DatasetSpec
from fedfisher_core.data.tables import Table, open_file, require_file
from fedfisher_core.data.texts import texts
from fedfisher_core.engine.errors import InputError, in_one_line, shortened, shown
from fedfisher_core.engine.files import parse_json
from fedfisher_core.reporting.rows import write_file

_SPEC = b"fedfisher"
_SPLIT = "split"

_SEED = 0
_LONGEST_ROW = 2**26
"""Of a CSV of texts, in bytes."""
_LARGEST = float(np.finfo(np.float32).max)
_GREY = ("1", "L", "I", "I;16", "I;16L", "I;16B", "I;16N")


def spec_of(path: Path) -> DatasetSpec:
    """Read what must be known of a data set from its file; InputError if the file does not say it."""
    require_file(path, f"data.dataset={shown(str(path))}")
    found = os.stat(path)
    return _spec(path, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=8)
def _spec(path: Path, _changed: int, _size: int) -> DatasetSpec:
    import pyarrow.parquet

    try:
        said = parse_json(pyarrow.parquet.read_schema(path).metadata[_SPEC])
        inputs: Layout
        if "texts" in said:
            inputs = Texts(*said["texts"])
        else:
            inputs = Vectors(said["features"]) if "features" in said else Images(*said["image"])
        names, mean, std = (tuple(said[key]) for key in ("columns", "mean", "std"))
        spec = DatasetSpec(str(path), None, said["classes"], inputs, mean, std, token_columns=("text",))
        return replace(spec, feature_columns=names) if names else spec
    except (OSError, LookupError, TypeError, ValueError, pyarrow.ArrowException) as error:
        raise InputError(
            f"data.dataset={shown(str(path))} says nothing of its classes and examples ({in_one_line(error)}); "
            "allowed: files that `fedfisher data import` writes"
        ) from error


def open_split(spec: DatasetSpec, split: str, where: str, row_bytes: int) -> Table:
    """Open the rows of one split; errors as for `open_file`."""
    import pyarrow.compute

    table = open_file(Path(spec.name), where, row_bytes)
    chosen = pyarrow.compute.equal(table.cells(table.column((_SPLIT,), "split")).cast("string"), split)

    def read(columns: Sequence[str]) -> Any:
        return table.read(columns).filter(chosen)

    return replace(table, size=int(pyarrow.compute.sum(chosen).as_py() or 0), read=read)


def write(
    path: Path, columns: Mapping[str, Any], labels: Sequence[int], names: Sequence[str], said: Mapping[str, Any]
) -> None:
    """Write such a file in one step.

    Args:
        columns: of the examples, by name; and each example's split under `split`.
        labels: of the examples, as indices of names.
        said: what must be known: image, features or texts, columns, mean and std.
    """
    import pyarrow.parquet

    features = {"label": {"_type": "ClassLabel", "names": list(names)}}
    metadata = {
        b"huggingface": json.dumps({"info": {"features": features}}),
        _SPEC: json.dumps({**said, "classes": len(names)}),
    }
    table = pyarrow.table({**columns, "label": pyarrow.array(labels, pyarrow.int64())})
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), sink)
    write_file(path, sink.getvalue().to_pybytes())


def import_table(source: Path, target: Path, *, label: str, test: float) -> None:
    """Write a CSV of numbers with a header and a column of labels as a file that `data.dataset` names.

    Numbers are scaled by the mean and the standard deviation of the training rows.

    Args:
        label: name of the column of labels, which are texts.
        test: fraction of each class that becomes test examples.

    Raises:
        InputError: names the file, the line and what is allowed; nothing is written.
    """
    require_file(source, "the table")
    rows, labels = [], []
    try:
        with source.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file, strict=True)
            header = next(lines, [])
            columns = _columns(header, label, source)
            for line in filter(None, lines):
                where = f"{source}, line {lines.line_num}"
                if len(line) != len(header):
                    raise InputError(f"{where} has {len(line)} cells; allowed: {len(header)}, as the header has")
                cells = dict(zip(header, line, strict=True))
                if not cells[label].strip():
                    raise InputError(f"{where} has no label in column {label!r}; allowed: a label in every row")
                labels.append(cells[label].strip())
                rows.append([_number(cells[name], f"{where}, column {name!r}") for name in columns])
    except InputError:
        raise
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"{source} can't be read: {in_one_line(error)}; allowed: a CSV in UTF-8") from error
    classes = _Classes.of(labels, source, test=test)
    numbers = np.array(rows)
    train = numbers[classes.splits == "train"]
    varies = (np.ptp(train, axis=0) > 0) & (train.std(0) > 0)
    said = {
        "features": len(columns),
        "columns": [f"feature {name}" for name in columns],
        # What is the same in all training rows says nothing of classes: it becomes next to 0, in test rows too.
        "mean": np.where(varies, train.mean(0), train[0]).tolist(),
        "std": np.where(varies, train.std(0), _LARGEST).tolist(),
    }
    classes.write(target, dict(zip(said["columns"], numbers.T, strict=True)), said)


def import_texts(source: Path, target: Path, *, text: str, label: str, test: float) -> None:
    """Write a CSV or Parquet file of texts and labels as a file that `data.dataset` names.

    Args:
        label: name of the column of labels, which are texts or numbers.
        test: fraction of each class that becomes test examples.

    Raises:
        InputError: names the file, the row and what is allowed; nothing is written.
    """
    table = _table(source, text, label)
    cells = texts(table, table.column((text,), "text")).to_pylist()
    if text == label:
        raise InputError(f"--text={text} and --label={label} name one column; allowed: two, as a text is no label")
    column = table.column((label,), "label")
    found, declared = names(table, column), declared_names(table, column)
    if declared is None:
        classes = _Classes.of([str(found.names[code]).strip() for code in found.codes], source, test=test)
    else:
        classes = _Classes.of(_named(found, declared, table), source, test=test, order=declared)
    # The settings `data.text` replace length and tokenizer.
    said: dict[str, Any] = {"texts": [64, 30_522], "columns": [], "mean": [], "std": []}
    classes.write(target, {"text": cells}, said)


def _named(found: Names, declared: Sequence[str], table: Table) -> list[str]:
    """Replace the numbers of classes by the names that the file's metadata give them."""
    if found.kind == "texts":
        unknown = [one for one in found.names if one not in declared]
    else:
        unknown = [one for one in found.names if not (isinstance(one, int) and 0 <= one < len(declared))]
    if unknown:
        row = int(np.flatnonzero(found.codes == found.names.index(unknown[0]))[0])
        raise table.refuse(row, f"label {shown(unknown[0])}; allowed: the {len(declared)} classes that are named")
    named = found.names if found.kind == "texts" else [declared[one] for one in found.names]
    return [named[code] for code in found.codes]


def import_pictures(source: Path, target: Path, *, size: int, test: float) -> None:
    """Write a folder of pictures, a subfolder a class, as a file that `data.dataset` names.

    Args:
        size: height and width in pixels to which each picture is brought; all are grey if all were grey before.
        test: fraction of each class that becomes test examples.

    Raises:
        InputError: names the file and what is allowed; nothing is written.
    """
    paths = ((path, path.relative_to(source).parts) for path in source.rglob("*") if path.is_file())
    found = sorted(path for path, parts in paths if not any(part.startswith(".") for part in parts))
    astray = [path for path in found if len(path.relative_to(source).parts) != 2]
    if astray or not found:
        what = f"{astray[0]} lies in no class's folder" if astray else f"{source} has no pictures"
        raise InputError(f"{what}; allowed: {source}/CLASS/PICTURE")
    folders = [one for one in sorted(source.iterdir()) if one.is_dir() and not one.name.startswith(".")]
    if linked := [one for one in folders if one.is_symlink()]:
        raise InputError(f"{linked[0]} is a link to a folder, which is not followed; allowed: folders")
    if empty := sorted(set(folders) - {path.parent for path in found}):
        raise InputError(f"{empty[0]} has no pictures; allowed: a folder of pictures for each class")
    grey = all(_each(path, lambda path: Image.open(path).mode in _GREY) for path in found)
    pictures = [_each(path, lambda path: _png(path, size=size, grey=grey)) for path in found]
    channels = 1 if grey else 3
    classes = _Classes.of([path.parent.name for path in found], source, test=test)
    said = {"image": [channels, size, size], "columns": [], "mean": [0.5] * channels, "std": [0.5] * channels}
    classes.write(target, {"image": pictures}, said)


def _table(source: Path, *columns: str) -> Table:
    if source.suffix == FILE:
        return open_file(source, str(source), row_bytes=0)
    import pyarrow.csv

    require_file(source, "the table")
    try:
        parsing = pyarrow.csv.ParseOptions(newlines_in_values=True)
        reading = pyarrow.csv.ReadOptions(block_size=_LONGEST_ROW)
        with pyarrow.csv.open_csv(source, reading, parsing) as first:
            header = first.schema.names
        # Labels that are numbers are names here. All others are texts too, as the type of a column that is not read
        # must not depend on its first rows.
        options = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(header, pyarrow.string()))
        read = pyarrow.csv.read_csv(source, reading, parsing, options)
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(
            f"{source} can't be read: {in_one_line(error)}; allowed: a CSV in UTF-8, with rows of up to "
            f"{_LONGEST_ROW >> 20} MiB"
        ) from error
    twice = next((name for name in columns if read.column_names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{source} has the column {shortened(twice)!r} twice; allowed: names that differ")
    return Table.of(read, str(source))


def _columns(header: Sequence[str], label: str, source: Path) -> list[str]:
    """Name the columns of numbers."""
    if label not in header or len(set(header)) < len(header) or len(header) < 2:
        raise InputError(
            f"{source} has the columns {shortened(', '.join(header)) or 'none'}; allowed: names that differ, {label!r} "
            "for the labels (--label names another) and at least one of numbers"
        )
    return [name for name in header if name != label]


def _number(cell: str, where: str) -> float:
    try:
        # Python takes 12_3 for 123.
        number = math.nan if "_" in cell else float(cell)
    except ValueError:
        number = math.nan
    if not abs(number) <= _LARGEST:
        raise InputError(f"{where}: {shown(cell)}; allowed: finite numbers up to {_LARGEST:.1e}, none missing")
    return number


def _each(path: Path, read: Callable[[Path], Any]) -> Any:
    try:
        with no_bombs():
            return read(path)
    except Exception as error:  # Pillow's decoders raise nearly anything at damaged files.
        raise InputError(f"{path} is no picture that can be read: {in_one_line(error)}; allowed: pictures") from error


def _png(path: Path, *, size: int, grey: bool) -> bytes:
    picture, _ = decode(path, "L" if grey else "RGB", (size, size))
    stream = io.BytesIO()
    picture.save(stream, format="PNG")
    return stream.getvalue()


@dataclass(frozen=True)
class _Classes:
    """The labels and the split of some examples.

    Args:
        names: of the classes, sorted, or in the order of a file's metadata.
        codes: the label of each example, as an index of names.
        splits: "train" or "test" for each example.
    """

    names: list[str]
    codes: NDArray[np.int64]
    splits: NDArray[np.str_]

    @classmethod
    def of(cls, labels: Sequence[str], source: Path, *, test: float, order: Sequence[str] | None = None) -> "_Classes":
        """Number the labels, and draw a fraction of each class for tests, at least one example.

        Args:
            order: of the names, of which those without examples are left out; None to sort them.
        """
        names, codes, counts = np.unique(np.array(labels, dtype=str), return_inverse=True, return_counts=True)
        if order is not None:
            places = np.argsort([order.index(str(name)) for name in names])
            names, counts, codes = names[places], counts[places], np.argsort(places)[codes]
        long = next((name for name in names.tolist() if len(name) > LONGEST_NAME), None)
        if long is not None:
            raise InputError(
                f"{source} has a label of {len(long):,} characters, {shortened(long)!r}; allowed: up to {LONGEST_NAME}"
            )
        if len(names) < 2 or counts.min() < 2:
            said = (
                f"class {str(names[counts.argmin()])!r} {'alone' if len(names) == 1 else 'once'}"
                if labels
                else "no rows"
            )
            raise InputError(f"{source} has {said}; allowed: two classes or more, each with two examples or more")
        rng = np.random.default_rng(_SEED)
        splits = np.full(len(codes), "train", dtype="<U5")
        for code, count in enumerate(counts):
            share = min(max(round(test * count), 1), count - 1)
            splits[rng.choice(np.flatnonzero(codes == code), share, replace=False)] = "test"
        return cls(names.tolist(), codes, splits)

    def write(self, target: Path, columns: Mapping[str, Any], said: Mapping[str, Any]) -> None:
        """Write the file; see `imported.write`."""
        write(target, {**columns, "split": self.splits.tolist()}, self.codes.tolist(), self.names, said)
