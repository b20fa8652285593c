"""Who made examples, as it is counted before the work and as it is decoded."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedfisher_core.data.counting import count_training
from fedfisher_core.data.layouts import Vectors
from fedfisher_core.data.sampling import ALL, Sample
from fedfisher_core.data.sources import find_source, read_dataset
from fedfisher_core.data.specs import DatasetSpec, datasets
from fedfisher_core.engine.errors import InputError

pytestmark = pytest.mark.usefixtures("root")

datasets.add("signed", DatasetSpec("signed", None, 3, Vectors(1), feature_columns=("age",)))
datasets.add("patients", DatasetSpec("patients", None, 3, Vectors(1), feature_columns=("age",), impute="mean"))


def write(root: Path, *, name: str = "signed", **makers: Any) -> None:
    """Write both splits; one that is not given has no makers, but four rows."""
    (root / name).mkdir(exist_ok=True)
    for split in ("train", "test"):
        rows = len(makers.get(split, range(4)))
        columns: dict[str, Any] = {
            "age": [float(row) for row in range(rows)],
            "label": [row % 3 for row in range(rows)],
        }
        pq.write_table(pa.table(columns | ({"who": makers[split]} if split in makers else {})), file(root, name, split))


def file(root: Path, name: str, split: str) -> Path:
    return root / name / f"{split}.parquet"


def both(name: str = "signed", sample: Sample = ALL) -> tuple[dict[str, int], list[int], list[int] | None]:
    """Count, then decode: training examples by maker, and the makers of both splits."""
    counted = count_training(find_source(name), sample=sample, group_column="who")
    assert counted is not None
    assert counted.groups is not None
    dataset = read_dataset(find_source(name), group_column="who", sample=sample)
    train, test = dataset.train.groups, dataset.test.groups
    assert train is not None
    named = [dataset.group_names[code] for code in train.tolist()]
    assert {one: named.count(one) for one in named} == dict(counted.groups)
    return dict(counted.groups), train.tolist(), None if test is None else test.tolist()


def refused(message: str, name: str = "signed", sample: Sample = ALL) -> None:
    """Expect the same refusal before any work, and where examples are decoded."""
    with pytest.raises(InputError, match=message):
        count_training(find_source(name), sample=sample, group_column="who")
    with pytest.raises(InputError, match=message):
        read_dataset(find_source(name), group_column="who")


def test_makers_of_test_examples_are_numbered_as_those_of_training_examples(root: Path) -> None:
    write(root, train=["zoe", "abe", "zoe", "kim"], test=["kim", "zoe"])
    assert both() == ({"abe": 1, "kim": 1, "zoe": 2}, [2, 0, 2, 1], [1, 2])


def test_numbers_are_names_in_the_order_of_numbers(root: Path) -> None:
    write(root, train=[10, 9, 10], test=[10])
    assert both() == ({"9": 1, "10": 2}, [1, 0, 1], [1])


def test_test_examples_need_no_makers(root: Path) -> None:
    write(root, train=["b", "a"])
    assert both() == ({"a": 1, "b": 1}, [1, 0], None)


def test_where_clients_scale_numbers_test_examples_need_their_makers(root: Path) -> None:
    write(root, name="patients", train=["b", "a"])
    refused(
        "partition.column='who': split 'test' of data set 'patients' has no such column; allowed: age, label",
        "patients",
    )
    write(root, name="patients", train=["b", "a"], test=["a"])
    assert both("patients")[2] == [0]


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("names", [[1.0, 2.0, math.nan], ["a", "b", None], ["a", "b", ""], ["a", "b", " "]])
def test_a_missing_name_is_named_by_its_row(root: Path, split: str, names: list[Any]) -> None:
    write(root, **{"train": names[:2], "test": names[:2], split: names})
    refused(f"split '{split}' of data set 'signed', row 2: the name is missing in column 'who'; allowed: a name in")


def test_a_column_of_anything_but_names_is_refused(root: Path) -> None:
    write(root, train=[["a"], ["b"]])
    refused("split 'train' of data set 'signed': column 'who' holds list<.*>; allowed: names, as texts or numbers")


def test_a_missing_column_is_named(root: Path) -> None:
    write(root)
    refused("partition.column='who': split 'train' of data set 'signed' has no such column; allowed: age, label")


def test_who_made_test_examples_alone_comes_last_and_counts_with_none(root: Path) -> None:
    write(root, train=["paris", "b"], test=["b", "a", "paris"])
    counted = count_training(find_source("signed"), group_column="who")
    assert counted is not None
    assert counted.groups == {"b": 1, "paris": 1, "a": 0}
    dataset = read_dataset(find_source("signed"), group_column="who")
    assert dataset.group_names == ("b", "paris", "a")
    assert dataset.test.groups is not None
    assert dataset.test.groups.tolist() == [0, 2, 1]


def test_a_maker_whom_a_sample_leaves_test_examples_alone_counts_with_none(root: Path) -> None:
    sample = Sample(examples=2)
    used = set(sample.draw(np.arange(6) % 3)[0].tolist())
    makers = ["rare" if row not in used else "common" for row in range(6)]
    write(root, train=makers, test=["rare"])
    counted = count_training(find_source("signed"), sample=sample, group_column="who")
    assert counted is not None
    assert counted.groups == {"common": 2, "rare": 0}
    # Without test examples it is no maker.
    write(root, train=makers, test=["common"])
    assert both(sample=sample)[0] == {"common": 2}


def test_held_out_examples_keep_their_makers(root: Path) -> None:
    sample = Sample(held_out=3)
    used, apart = sample.draw(np.arange(9) % 3)
    write(root, train=[row % 2 for row in range(9)], test=[0])
    _, train, test = both(sample=sample)
    assert train == [row % 2 for row in used]
    assert test == [row % 2 for row in apart]


@pytest.mark.parametrize(
    ("train", "test", "kinds"),
    [
        ([0, 1], ["0", "1"], ("whole numbers", "texts")),
        (["0", "1"], [0, 1], ("texts", "whole numbers")),
        ([0, 1], [0.0, 1.0], ("whole numbers", "double")),
        ([0, 1], [False, True], ("whole numbers", "bool")),
        (pa.array([0.1, 0.2], pa.float32()), [0.1, 0.2], ("float", "double")),
    ],
)
def test_names_of_two_types_are_refused_with_both(root: Path, train: Any, test: Any, kinds: tuple[str, str]) -> None:
    write(root, train=train, test=test)
    refused(
        f"partition.column='who' holds {kinds[0]} in split 'train' of data set 'signed', such as .*, and {kinds[1]} in "
        "split 'test' of data set 'signed', such as .*; allowed: one type in both"
    )


@pytest.mark.parametrize(
    ("train", "test"),
    [
        (pa.array([0, 1], pa.int64()), pa.array([1, 0], pa.uint8())),
        (["0", "1"], pa.array(["1", "0"]).dictionary_encode()),
        (pa.array(["0", "1"]).dictionary_encode(), pa.array(["1", "0"], pa.large_string())),
    ],
)
def test_one_maker_is_one_however_its_name_is_stored(root: Path, train: Any, test: Any) -> None:
    write(root, train=train, test=test)
    assert both() == ({"0": 1, "1": 1}, [0, 1], [1, 0])


def test_names_are_fit_to_be_printed(root: Path) -> None:
    write(root, train=["\x1b[2J", "a\u202eb"], test=["a\u202eb"])
    assert both() == ({"\\x1b[2J": 1, "a\\u202eb": 1}, [0, 1], [1])
    write(root, train=["\x1b", "\\x1b"], test=["\x1b"])
    refused("two names are both written .*; allowed: names that differ")
