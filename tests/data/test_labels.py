"""Labels as files have them: numbers, texts, and names that stand in another order in each file."""

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedfisher_core.data.counting import count_training
from fedfisher_core.data.layouts import Images, Vectors
from fedfisher_core.data.sampling import Sample
from fedfisher_core.data.sources import find_source, read_dataset
from fedfisher_core.data.specs import DatasetSpec, datasets
from fedfisher_core.data.tensors import Dataset
from fedfisher_core.engine.errors import InputError
from tests import tiny

pytestmark = pytest.mark.usefixtures("root")

PETS = ["cat", "dog", "eel"]
TURNED = ["dog", "eel", "cat"]

datasets.add("pets", DatasetSpec("pets", None, 3, Vectors(1), feature_columns=("age",)))
for _name in ("own_pets", "other_pets"):
    datasets.add(_name, DatasetSpec(_name, None, 3, Images(1, 6, 6)))
datasets.add(
    "all_pets",
    DatasetSpec("all_pets", None, 3, Images(1, 6, 6), client_column="owner", parts=("own_pets", "other_pets")),
)


def described(names: Any) -> bytes:
    return json.dumps({"info": {"features": {"label": {"names": names, "_type": "ClassLabel"}}}}).encode()


def write(root: Path, split: str, labels: Any, names: Sequence[str] | None = None, *, hub: bytes | None = None) -> None:
    """Write one split, with names of its classes in its metadata where there are any."""
    rows = pa.table({"age": np.arange(len(labels), dtype=float), "label": labels})
    if (said := described(list(names)) if names is not None else hub) is not None:
        rows = rows.replace_schema_metadata({"huggingface": said})
    (root / "pets").mkdir(exist_ok=True)
    pq.write_table(rows, root / "pets" / f"{split}.parquet")


def read() -> Dataset:
    """Read the data set as it is decoded; before any work it is counted in the same way."""
    dataset = read_dataset(find_source("pets"))
    counted = count_training(find_source("pets"))
    assert counted is not None
    assert counted.labels.tolist() == dataset.train.labels.bincount(minlength=3).tolist()
    return dataset


def refused(message: str) -> None:
    """Expect the same refusal before any work, and where examples are decoded."""
    with pytest.raises(InputError, match=message):
        count_training(find_source("pets"))
    with pytest.raises(InputError, match=message):
        read_dataset(find_source("pets"))


def named(dataset: Dataset) -> tuple[list[str], list[str]]:
    """Names of the labels of both splits."""
    return tuple([dataset.class_names[label] for label in one.labels] for one in (dataset.train, dataset.test))


def test_names_in_another_order_are_matched(root: Path) -> None:
    write(root, "train", [0, 1, 2], PETS)
    write(root, "test", [0, 1, 2], TURNED)
    dataset = read()
    assert named(dataset) == (PETS, TURNED)
    assert dataset.notes == ("The splits of pets list their classes in different orders; labels are matched by name.",)


def test_names_in_one_order_need_no_note(root: Path) -> None:
    for split in ("train", "test"):
        write(root, split, [0, 2, 1], PETS)
    dataset = read()
    assert dataset.train.labels.tolist() == [0, 2, 1]
    assert (dataset.class_names, dataset.notes) == (tuple(PETS), ())


@pytest.mark.parametrize(("train", "test"), [(PETS, TURNED[:2]), (PETS[:2], TURNED)])
def test_a_split_may_name_some_of_the_classes(root: Path, train: list[str], test: list[str]) -> None:
    write(root, "train", range(len(train)), train)
    write(root, "test", range(len(test)), test)
    assert named(read()) == (train, test)


@pytest.mark.parametrize(
    ("train", "test", "number"),
    [(PETS, ["dog", "eel", "fox"], 4), (PETS[:2], PETS[:2], 2), ([*PETS, "fox"], [*PETS, "fox"], 4)],
)
def test_other_names_are_refused_with_all_lists(root: Path, train: list[str], test: list[str], number: int) -> None:
    write(root, "train", [0, 1], train)
    write(root, "test", [0, 1], test)
    lists = [", ".join(map(repr, names)) for names in (train, test)]
    refused(
        f"data set 'pets' has 3 classes, but {number} are named \\(split 'train' of data set 'pets': {lists[0]}; split "
        f"'test' of data set 'pets': {lists[1]}\\); allowed: the same 3 names everywhere"
    )


@pytest.mark.parametrize("which", ["train", "test"])
def test_numbers_beside_names_are_their_places(root: Path, which: str) -> None:
    write(root, "train", [2, 0], PETS if which == "train" else None)
    write(root, "test", [1, 2], PETS if which == "test" else None)
    dataset = read()
    assert named(dataset) == (["eel", "cat"], ["dog", "eel"])
    assert dataset.notes == (
        f"Only the split '{which}' of data set 'pets' names classes; the other's labels number them in this order: "
        "cat, dog, eel.",
    )


def test_numbers_beside_numerals_in_another_order_are_refused(root: Path) -> None:
    write(root, "train", [0, 1], ["1", "2", "0"])
    write(root, "test", [0, 1])
    refused(
        "split 'train' .* names its classes '1', '2', '0', and split 'test' .* has numbers without names, which may"
    )
    write(root, "train", [0, 1], ["0", "1", "2"])
    assert read().test.labels.tolist() == [0, 1]


def test_texts_are_numbered_in_sorted_order(root: Path) -> None:
    write(root, "train", ["eel", "cat"])
    write(root, "test", ["dog", "eel"])
    dataset = read()
    assert dataset.class_names == tuple(PETS)
    assert (dataset.train.labels.tolist(), dataset.test.labels.tolist()) == ([2, 0], [1, 2])
    assert dataset.notes == ("Labels of pets are texts, numbered in this order: cat, dog, eel.",)


def test_texts_of_any_kind_are_read(root: Path) -> None:
    write(root, "train", pa.array(TURNED).dictionary_encode())
    write(root, "test", pa.array(TURNED, pa.large_string()))
    assert named(read()) == (TURNED, TURNED)


def test_texts_and_named_numbers_are_matched(root: Path) -> None:
    write(root, "train", PETS)
    write(root, "test", [0, 1, 2], TURNED)
    assert named(read()) == (PETS, TURNED)
    write(root, "train", ["cat", "fox"])
    refused(r"4 are named \(split 'train' of data set 'pets': 'cat', 'fox'; split 'test' .*: 'dog', 'eel', 'cat'\)")


def test_texts_and_numbers_are_refused_with_both_types(root: Path) -> None:
    write(root, "train", PETS)
    write(root, "test", [0, 1])
    refused("labels are string in split 'train' of data set 'pets', and int64 in split 'test' of data set 'pets'; allo")


def test_more_texts_than_classes_are_refused(root: Path) -> None:
    write(root, "train", PETS)
    write(root, "test", ["fox"])
    refused("data set 'pets' has 3 classes, but 4 texts as labels: 'cat', 'dog', 'eel', 'fox'; allowed: up to 3")


def test_fewer_texts_than_classes_leave_classes_without_a_name(root: Path) -> None:
    for split in ("train", "test"):
        write(root, split, ["dog", "cat"])
    assert read().class_names == ("cat", "dog", "(class 2 without examples)")


def test_names_are_fit_to_be_printed(root: Path) -> None:
    odd = ["\x1b[31mred", "a\nb", "\u202etxt"]
    for split in ("train", "test"):
        write(root, split, [0, 1, 2], odd)
    assert read().class_names == ("\\x1b[31mred", "a\\nb", "\\u202etxt")
    for split in ("train", "test"):
        write(root, split, odd)
    assert read().class_names == ("\\x1b[31mred", "a\\nb", "\\u202etxt")


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0.0, 1.0], ": column 'label' holds double, such as 0.0; allowed: whole numbers from 0, or texts, in every"),
        ([True, False], ": column 'label' holds bool, such as True; allowed: "),
        ([[1], [0]], r": column 'label' holds list<element: int64>, such as \[1\]; allowed: "),
        ([b"cat", b"dog"], ": column 'label' holds binary, such as b'cat'; allowed: "),
        ([datetime.date(2020, 1, 2)] * 2, ": column 'label' holds date32.*; allowed: "),
        (pa.nulls(2), ": column 'label' holds null; allowed: "),
        ([0, None], ", row 1: the label is missing in column 'label'; allowed: a label in every row"),
        (["cat", None], ", row 1: the label is missing in column 'label'; allowed: a label in every row"),
        (["cat", " "], ", row 1: the label is missing in column 'label'; allowed: a label in every row"),
        (["cat", "x" * 201], ", row 1: the label has 201 characters; allowed: up to 200"),
        (pa.array([0, 2**64 - 1], pa.uint64()), ", row 1: label 18446744073709551615 is out of range; allowed: 0 to 2"),
        (pa.array([0, 2**63], pa.uint64()), ", row 1: label 9223372036854775808 is out of range; allowed: 0 to 2"),
        ([0, -1], ", row 1: label -1 is out of range; allowed: 0 to 2"),
        ([], " is empty"),
    ],
)
def test_labels_that_are_none_are_named(root: Path, split: str, labels: Any, message: str) -> None:
    for one in ("train", "test"):
        write(root, one, labels if one == split else ([0, 1] if not _are_texts(labels) else ["cat", "dog"]))
    refused(f"split '{split}' of data set 'pets'{message}")


def _are_texts(labels: Any) -> bool:
    return any(isinstance(one, str) for one in labels)


def test_a_label_beyond_the_names_is_named(root: Path) -> None:
    for split in ("train", "test"):
        write(root, split, [0, 2], PETS[:2])
    refused("row 1: label 2 is out of range; allowed: 0 to 1, the 2 classes that are named")


@pytest.mark.parametrize(
    ("hub", "reason"),
    [
        (b"{no json", "Expecting property name"),
        (b"null", "it has no 'info'"),
        (b'{"info": null}', "it has no 'features'"),
        (b'{"info": {"features": []}}', r"its features are \[\]"),
        (b"\xff", "."),
        (b"[" * 100_000, "it is nested too deeply"),
    ],
)
def test_metadata_that_are_not_the_hubs_are_refused(root: Path, hub: bytes, reason: str) -> None:
    write(root, "train", [0, 1])
    write(root, "test", [0, 1], hub=hub)
    refused(f"split 'test' .*test.parquet.*: what the file's metadata say under 'huggingface' can't be read: {reason}")


@pytest.mark.parametrize("names", ["cat", [1, 2, 3], {"0": "cat"}, ["cat", "cat", "dog"], [], ["cat", " ", "dog"]])
def test_names_of_classes_that_are_none_are_refused(root: Path, names: Any) -> None:
    write(root, "train", [0, 1], hub=described(names))
    write(root, "test", [0, 1])
    refused(
        "split 'train' of data set 'pets': the metadata of column 'label' name the classes .*; allowed: a list of t"
    )


@pytest.mark.parametrize("feature", ["ClassLabel", None, {"_type": ["ClassLabel"]}])
def test_a_description_of_labels_that_is_none_is_refused(root: Path, feature: Any) -> None:
    write(root, "train", [0, 1], hub=json.dumps({"info": {"features": {"label": feature}}}).encode())
    write(root, "test", [0, 1])
    refused("split 'train' of data set 'pets': the metadata of column 'label' are .*; allowed: a type")


def test_classes_of_test_examples_alone_are_mentioned(root: Path) -> None:
    write(root, "train", [0, 0, 1], PETS)
    write(root, "test", [2, 1, 2, 0], PETS)
    counted = count_training(find_source("pets"))
    assert counted is not None
    assert counted.unseen == "2 of 4 test examples are of classes without any training example: eel (2)."
    write(root, "train", [2, 0, 1], PETS)
    counted = count_training(find_source("pets"))
    assert counted is not None
    assert counted.unseen == ""


def test_a_class_that_a_sample_leaves_out_is_mentioned(root: Path) -> None:
    write(root, "train", [0] * 30 + [1] * 30 + [2])
    write(root, "test", [2])
    counted = count_training(find_source("pets"), sample=Sample(examples=4))
    assert counted is not None
    assert counted.labels.tolist() == [2, 2, 0]
    assert counted.unseen == "1 of 1 test examples are of classes without any training example: 2 (1)."


def write_part(root: Path, part: str, labels: list[Any], names: list[str] | None) -> None:
    for split in ("train", "test"):
        pixels = [tiny.png(np.full((6, 6), 9, dtype=np.uint8))] * len(labels)
        tiny.write_split(root / part / f"{split}.parquet", {"image": pixels, "label": labels}, class_names=names)


@pytest.mark.parametrize("labels", [[0, 1], ["dog", "eel", "cat"]])
def test_names_of_parts_are_matched(root: Path, labels: list[Any]) -> None:
    write_part(root, "own_pets", [0, 1, 2], PETS)
    write_part(root, "other_pets", labels, None if isinstance(labels[0], str) else TURNED)
    dataset = read_dataset(find_source("all_pets"))
    assert named(dataset) == ([*PETS, *TURNED[: len(labels)]],) * 2
    counted = count_training(find_source("all_pets"))
    assert counted is not None
    assert counted.labels.tolist() == dataset.train.labels.bincount(minlength=3).tolist()


def test_parts_that_name_other_classes_are_refused_with_all_lists(root: Path) -> None:
    write_part(root, "own_pets", [0, 1, 2], PETS)
    write_part(root, "other_pets", [0, 1], ["dog", "fox", "cat"])
    message = r"4 are named \(part 'own_pets': 'cat', 'dog', 'eel'; part 'other_pets': 'dog', 'fox', 'cat'\)"
    for look in (count_training, read_dataset):
        with pytest.raises(InputError, match=message):
            look(find_source("all_pets"))
