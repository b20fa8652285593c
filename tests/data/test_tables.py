"""Files as they are found in a folder: damaged, endless, too large, or no files at all."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedfisher_core.data import tables
from fedfisher_core.data.counting import count_training
from fedfisher_core.data.layouts import Vectors
from fedfisher_core.data.sources import find_source, read_dataset
from fedfisher_core.data.specs import DatasetSpec, datasets
from fedfisher_core.engine.errors import InputError

datasets.add("listed", DatasetSpec("listed", None, 2, Vectors(3), feature_columns=("x",)))


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The training file of a good data set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(tmp_path))
    (tmp_path / "listed").mkdir()
    for split in ("train", "test"):
        write(tmp_path / "listed" / f"{split}.parquet", 4)
    return tmp_path / "listed" / "train.parquet"


def write(path: Path, rows: int, length: int = 3) -> None:
    """Write equal rows, which a file holds in a few bytes."""
    values = pa.array(np.zeros(rows * length, dtype=np.int8))
    lists = pa.ListArray.from_arrays(pa.array(np.arange(rows + 1) * length, pa.int32()), values)
    pq.write_table(pa.table({"x": lists, "label": np.zeros(rows, dtype=np.int8)}), path)


def refused(message: str) -> None:
    """Expect one line, before any work."""
    with pytest.raises(InputError, match=message) as caught:
        count_training(find_source("listed"))
    assert len(str(caught.value).splitlines()) == 1


def test_a_good_file_is_read(train: Path) -> None:
    assert read_dataset(find_source("listed")).train.inputs.shape == (4, 3)


def test_a_link_to_a_file_is_read(train: Path) -> None:
    train.rename(train.with_name("elsewhere"))
    train.symlink_to("elsewhere")
    assert len(read_dataset(find_source("listed")).train) == 4


def _bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        # Its name has a limit that folders of tests exceed.
        made.bind(path.name)
    Path(path.name).rename(path)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (os.mkfifo, "is no regular file"),
        (_bind, "is no regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "is no regular file"),
        (Path.mkdir, "is a folder, not a file"),
        (lambda path: path.symlink_to("nowhere"), "is missing, no file"),
        (lambda path: path.symlink_to(path.name), "is missing, no file"),
    ],
    ids=["pipe", "socket", "device", "folder", "dangling", "circle"],
)
def test_what_is_no_file_is_never_waited_for(train: Path, make: Callable[[Path], None], message: str) -> None:
    train.unlink()
    make(train)
    refused(f"data set 'listed': split 'train' {message}.* ?.*listed/train.parquet")


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"PAR1",
        lambda data: b"PAR1PAR1",
        lambda data: data[:-50],
        lambda data: data[50:],
        lambda data: data[:-8] + b"\xff\xff\xff\x7fPAR1",
        lambda data: b"x,label\n1,0\n",
        lambda data: data[:-4] + b"PARE",
    ],
    ids=["empty", "magic", "no footer", "cut", "begun late", "long footer", "text", "encrypted"],
)
def test_a_damaged_file_is_named(train: Path, damage: Callable[[bytes], bytes]) -> None:
    train.write_bytes(damage(train.read_bytes()))
    refused(r"split 'train' of data set 'listed' can't be read \(.*listed/train.parquet\): .")


def test_a_column_that_is_there_twice_is_refused(train: Path) -> None:
    pq.write_table(pa.Table.from_arrays([pa.array([0, 1])] * 2, names=["label", "label"]), train)
    refused("has the column 'label' twice; allowed: names that differ")


def test_rows_are_counted_before_they_are_read(train: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(train, tables.MAX_ROWS + 1, 0)
    monkeypatch.setattr(tables, "_read", None)
    refused(r"split 'train' of data set 'listed' \(.*train.parquet\) has 10,000,001 rows; allowed: up to 10,000,000")


def test_decoded_rows_are_bounded(train: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_BYTES", 4 * 3 * 8)
    assert len(read_dataset(find_source("listed")).train) == 4
    monkeypatch.setattr(tables, "MAX_BYTES", 4 * 3 * 8 - 1)
    refused(r"split 'train' .*: 4 decoded rows take 0.0 GiB; allowed: up to")


def test_lists_are_bounded_before_they_are_read(train: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(train, 2, 1000)
    monkeypatch.setattr(tables, "MAX_BYTES", 10_000)
    refused("split 'train' .*: 2,000 values in column 'x' take 0.0 GiB; allowed: up to")


def test_names_of_columns_are_fit_to_be_printed(train: Path) -> None:
    pq.write_table(pa.table({"a\x1b[2J": [1], "b\nc": [2]}), train)
    with pytest.raises(InputError) as caught:
        count_training(find_source("listed"))
    assert str(caught.value).isprintable()
