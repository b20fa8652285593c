import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from fedfisher_core.data.columns import vectors
from fedfisher_core.data.counting import count_training
from fedfisher_core.data.layouts import Vectors
from fedfisher_core.data.sources import find_source, read_dataset
from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.data.tables import Table
from fedfisher_core.data.tensors import Dataset, Split, observe, select
from fedfisher_core.engine.errors import InputError
from tests import arranged, tiny

pytestmark = pytest.mark.usefixtures("root")


def write(root: Path, name: str, columns: dict[str, Any]) -> None:
    for split in ("train", "test"):
        (root / name).mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), root / name / f"{split}.parquet")


def read(name: str) -> Dataset:
    return read_dataset(find_source(name))


def table(root: Path, **columns: Any) -> None:
    """Two rows of the table; columns that are not given hold numbers that are all right."""
    plain = {"age": [1.0, 7.0], "height": [2.0, 8.0], "weights": [[3.0, 4.0, 5.0, 6.0], [9.0, 10.0, 11.0, 12.0]]}
    write(root, "table", plain | {"label": [0, 2]} | columns)


def texts(root: Path, tokens: Any) -> None:
    write(root, "texts", {"tokens": tokens, "label": [0, 2]})


def test_a_table_and_sequences_are_read_as_they_were_written(root: Path) -> None:
    arranged.write(root)
    rows, labels = arranged.numbers(tiny.TRAIN, seed=1)
    found = read("table").train
    assert found.inputs.dtype == torch.float64
    assert np.array_equal(found.inputs.numpy(), rows)
    assert found.labels.tolist() == labels

    expected, labels = arranged.sequences(tiny.TEST, seed=2)
    found = read("texts").test
    assert found.inputs.dtype == torch.int64
    assert np.array_equal(found.inputs.numpy(), expected)
    assert found.labels.tolist() == labels


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.float32(), pa.bool_()], ids=str)
def test_numbers_of_any_kind_are_read(root: Path, kind: pa.DataType) -> None:
    table(root, height=pa.array([0, 1]).cast(kind))
    assert read("table").train.inputs.tolist() == [[1, 0, 3, 4, 5, 6], [7, 1, 9, 10, 11, 12]]


def test_whole_numbers_that_doubles_round_are_read(root: Path) -> None:
    table(root, age=[2**60 + 1, 0])
    assert read("table").train.inputs[0, 0] == 2.0**60


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"height": [1.0, None]}, "row 1: a number is missing in column 'height'; allowed: finite numbers"),
        ({"height": [float("nan"), 1.0]}, "row 0: a number is missing in column 'height'"),
        ({"height": [1.0, 1e39]}, r"row 1: 1e\+39 is not finite as float32 in column 'height'"),
        ({"weights": [[1.0] * 4, [1.0, None, 1.0, 1.0]]}, "row 1: a number is missing in column 'weights'"),
        ({"weights": [[1.0] * 4, None]}, "row 1: the list is missing in column 'weights'"),
        ({"weights": [[1.0] * 3, [1.0] * 4]}, "row 0: the list in column 'weights' has length 3; allowed: 4"),
        (
            {"weights": [[1.0] * 3, [1.0] * 3]},
            ": columns 'age', 'height', 'weights' hold 5 numbers a row; allowed: 6",
        ),
        ({"height": ["1", "2"]}, ": column 'height' holds string; allowed: numbers or times, or lists of them"),
    ],
)
def test_numbers_that_are_none_are_named(root: Path, columns: dict[str, Any], message: str) -> None:
    table(root, **columns)
    with pytest.raises(InputError, match=f"split 'train' of data set 'table',? ?{message}"):
        read("table")


def test_a_missing_column_of_numbers_is_named(root: Path) -> None:
    write(root, "table", {"age": [1.0], "label": [0]})
    with pytest.raises(InputError, match="has no feature column 'height'; it has"):
        read("table")


@pytest.mark.parametrize("kind", [pa.list_(pa.uint8()), pa.large_list(pa.int32()), pa.list_(pa.int64(), 5)], ids=str)
def test_lists_of_tokens_of_any_kind_are_read(root: Path, kind: pa.DataType) -> None:
    texts(root, pa.array([[0, 1, 2, 3, 11], [5, 5, 5, 5, 5]], kind))
    assert read("texts").train.inputs.tolist() == [[0, 1, 2, 3, 11], [5, 5, 5, 5, 5]]


GOOD = [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([GOOD, [0, 1, 2, 3, 12]], ", row 1: token 12 is out of range; allowed: 0 to 11"),
        ([[-1, 0, 0, 0, 0], GOOD], ", row 0: token -1 is out of range"),
        ([GOOD, [0, 1, 2]], ", row 1: the list in column 'tokens' has length 3; allowed: 5"),
        ([GOOD, None], ", row 1: the list is missing in column 'tokens'"),
        ([GOOD, [0, 1, None, 3, 4]], ", row 1: a token is missing in column 'tokens'"),
        ([3, 4], ": column 'tokens' holds int64; allowed: lists of whole numbers"),
        ([[0.5] * 5, [0.5] * 5], ": column 'tokens' holds list<.*double>; allowed: lists of whole numbers"),
        (["a b", "c"], ": column 'tokens' holds string; allowed: lists of whole numbers"),
    ],
)
def test_tokens_that_are_none_are_named(root: Path, tokens: list[Any], message: str) -> None:
    texts(root, tokens)
    with pytest.raises(InputError, match=f"split 'train' of data set 'texts'{message}"):
        read("texts")


def test_lists_that_are_all_empty_are_refused() -> None:
    rows = pyarrow.table({"x": pyarrow.array([[], []], type=pyarrow.list_(pyarrow.float32()))})
    with pytest.raises(InputError, match=r"row 0: the list in column 'x' has length 0; allowed: 1"):
        vectors(Table.of(rows, "split 'train'"), ("x",), Vectors(1))


SECOND = datetime(2023, 1, 1, 0, 0, 1)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        *((pa.array([SECOND, SECOND], pa.timestamp(unit)), 1672531201.0) for unit in ("s", "ms", "us", "ns")),
        (pa.array([SECOND, SECOND], pa.timestamp("us", "Europe/Berlin")), 1672531201.0),
        ([date(2020, 1, 1)] * 2, 18262.0),
        (pa.array([date(2020, 1, 1)] * 2, pa.date64()), 18262.0),
        (pa.array([time(1, 2, 3)] * 2, pa.time32("ms")), 3723.0),
        (pa.array([time(1, 2, 3)] * 2, pa.time64("ns")), 3723.0),
        ([timedelta(seconds=90)] * 2, 90.0),
        ([Decimal("2460000.50001")] * 2, 2460000.50001),
        ([2460000.50001] * 2, 2460000.50001),
    ],
)
def test_times_are_numbers_in_double_precision(root: Path, cells: Any, expected: float) -> None:
    table(root, age=cells)
    assert read("table").train.inputs[:, 0].tolist() == [expected] * 2


def test_numbers_and_times_in_one_column_are_refused(root: Path) -> None:
    table(root)
    train = pq.read_table(root / "table" / "train.parquet")
    times = pa.array([SECOND, SECOND], pa.timestamp("ms"))
    pq.write_table(train.set_column(0, "age", times), root / "table" / "test.parquet")
    message = r"column 'age' holds double in split 'train' .*, and timestamp\[ms\] in split 'test' .*; allowed: numbers"
    with pytest.raises(InputError, match=message):
        read("table")


def test_large_numbers_are_scaled_before_they_are_made_single() -> None:
    spec = DatasetSpec("times", None, 2, Vectors(1), mean=(1.7e9,), std=(10.0,))
    split = Split(inputs=torch.tensor([[1.7e9], [1.7e9 + 10]], dtype=torch.float64), labels=torch.tensor([0, 1]))
    made = select(split, spec).inputs
    assert made.dtype == torch.float32
    assert made.tolist() == [[0.0], [1.0]]


def test_times_of_a_client_are_told_apart_by_its_own_scale() -> None:
    times = torch.tensor([[1.7e9], [1.7e9 + 10], [math.nan]], dtype=torch.float64)
    made = observe([times], "mean").apply(times, torch.zeros(3, dtype=torch.int64))
    assert made.tolist() == [[-1.0], [1.0], [0.0]]


def test_the_row_of_tables_is_named_before_any_work(root: Path) -> None:
    table(root, weights=[[1.0] * 4, [1.0] * 5])
    with pytest.raises(InputError, match="row 1: the list in column 'weights' has length 5; allowed: 4"):
        count_training(find_source("table"))
