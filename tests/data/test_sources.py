import os
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from fedfisher_core.data.hub import fetch
from fedfisher_core.data.sampling import Sample
from fedfisher_core.data.sources import find_source
from fedfisher_core.engine.errors import InputError
from tests import arranged, tiny
from tests.data.files import grey, read, write


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that FEDFISHER_DATA_DIR names, in an empty working directory."""
    (tmp_path / "named").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(tmp_path / "named"))
    return tmp_path / "named"


@pytest.mark.parametrize("folder", ["data[12]", "data?", "data*", "data[1", "é #%20"])
def test_a_folder_is_taken_by_its_name_and_not_as_a_pattern(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    write(tmp_path / folder, label=[0, 2])
    # What the name would match as a pattern.
    write(tmp_path / "data1", label=[1, 1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDFISHER_DATA_DIR", folder)
    assert read().train.labels.tolist() == [0, 2]


def test_a_folder_is_read_without_the_network(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def ask(*host: object, **_: object) -> list[object]:
        asked.append(host)
        raise OSError

    monkeypatch.setattr(socket, "getaddrinfo", ask)
    write(root)
    read()
    assert not asked


def test_a_folder_of_parquet_files_is_read(root: Path) -> None:
    tiny.write_tiny(root)
    dataset = read()
    pixels, labels = tiny.images(tiny.TRAIN, seed=1)
    assert torch.equal(dataset.train.inputs, torch.from_numpy(np.stack(pixels))[:, None])
    assert dataset.train.inputs.dtype == torch.uint8
    assert dataset.train.labels.tolist() == labels
    assert len(dataset.test) == tiny.TEST
    assert dataset.class_names == tuple(tiny.CLASS_NAMES)
    assert dataset.train.groups is None


def test_classes_without_names_are_numbered(root: Path) -> None:
    write(root)
    assert read().class_names == ("0", "1", "2")


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_missing_split_is_named(root: Path, split: str) -> None:
    write(root)
    (root / "tiny" / f"{split}.parquet").unlink()
    with pytest.raises(InputError, match=f"data set 'tiny': split '{split}' is missing, no file .*{split}.parquet"):
        find_source("tiny")


def test_a_missing_column_is_named_with_those_that_are_there(root: Path) -> None:
    tiny.write_split(root / "tiny" / "train.parquet", {"picture": [1], "label": [0]})
    tiny.write_split(root / "tiny" / "test.parquet", {"picture": [1], "label": [0]})
    with pytest.raises(InputError) as caught:
        read()
    assert "split 'train' of data set 'tiny' has no image column 'image' or 'img'" in str(caught.value)
    assert "['picture', 'label']" in str(caught.value)


def test_other_names_of_columns_are_known(root: Path) -> None:
    for split in ("train", "test"):
        columns = {"img": [grey(7)], "label": [0], "fine": [2]}
        tiny.write_split(root / "coloured" / f"{split}.parquet", columns)
    dataset = read("coloured")
    assert dataset.train.labels.tolist() == [2]
    assert (dataset.train.inputs == 7).all()


def test_an_empty_cell_is_named_by_its_row(root: Path) -> None:
    for split in ("train", "test"):
        image = pa.array(
            [{"bytes": grey(1), "path": None}, None], pa.struct({"bytes": pa.binary(), "path": pa.string()})
        )
        (root / "tiny").mkdir(exist_ok=True)
        pq.write_table(pa.table({"image": image, "label": [0, 1]}), root / "tiny" / f"{split}.parquet")
    with pytest.raises(InputError, match="row 1: the image can't be read: the cell is empty"):
        read()


@pytest.mark.parametrize("label", [3, -1])
def test_a_label_out_of_range_is_named_by_its_row(root: Path, label: int) -> None:
    write(root, label=[0, label])
    with pytest.raises(InputError, match=f"row 1: label {label} is out of range; allowed: 0 to 2"):
        read()


@pytest.mark.parametrize(
    ("cells", "held"),
    [
        ([1, 2], "numbers"),
        ([0.5, 1.5], "numbers"),
        ([[1, 2], [3, 4]], "list<.*>"),
        ([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], "list<.*>"),
        ([True, False], "bool"),
    ],
)
def test_an_image_column_of_anything_else_is_refused(root: Path, cells: list[Any], held: str) -> None:
    (root / "tiny").mkdir()
    for split in ("train", "test"):
        pq.write_table(pa.table({"image": cells, "label": [0, 1]}), root / "tiny" / f"{split}.parquet")
    with pytest.raises(InputError, match=f"split 'train' of data set 'tiny': column 'image' holds {held}, not images"):
        read()


def test_images_without_the_hubs_description_are_read(root: Path) -> None:
    (root / "tiny").mkdir()
    for split in ("train", "test"):
        table = pa.table({"image": [grey(3), grey(4)], "label": [0, 1]})
        pq.write_table(table, root / "tiny" / f"{split}.parquet")
    assert read().train.inputs[:, 0, 0, 0].tolist() == [3, 4]


def test_an_empty_split_is_refused(root: Path) -> None:
    write(root)
    table = pq.read_table(root / "tiny" / "test.parquet")
    pq.write_table(table.slice(0, 0), root / "tiny" / "test.parquet")
    with pytest.raises(InputError, match="data set 'tiny'"):
        read()


def test_a_file_that_is_no_table_is_refused(root: Path) -> None:
    write(root)
    (root / "tiny" / "train.parquet").write_bytes(b"no table at all")
    with pytest.raises(InputError, match=r"split 'train' .* can't be read \(.*named/tiny/train.parquet\)"):
        read()


def test_makers_are_numbered(root: Path) -> None:
    write(root, maker=["zoe", "abe"])
    assert read(group_column="maker").train.groups is not None
    write(
        root,
        image=[grey(1)] * 4,
        label=[0, 1, 2, 0],
        maker=["zoe", "abe", "zoe", "kim"],
    )
    groups = read(group_column="maker").train.groups
    assert groups is not None
    assert groups.tolist() == [2, 0, 2, 1]


def test_only_the_training_images_need_their_makers(root: Path) -> None:
    columns = {"image": [grey(1), grey(2)], "label": [0, 1]}
    tiny.write_split(root / "tiny" / "train.parquet", columns | {"maker": [5, 4]})
    tiny.write_split(root / "tiny" / "test.parquet", columns)
    groups = read(group_column="maker").train.groups
    assert groups is not None
    assert groups.tolist() == [1, 0]


def test_a_missing_maker_column_is_named(root: Path) -> None:
    write(root)
    with pytest.raises(InputError, match=r"partition\.column='maker': split 'train' .* has no such column"):
        read(group_column="maker")


def test_a_data_folder_that_is_none_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(root / "absent"))
    with pytest.raises(InputError, match=r"FEDFISHER_DATA_DIR='.*absent' is not a folder"):
        find_source("tiny")


def test_an_unknown_data_set_is_refused(root: Path) -> None:
    with pytest.raises(InputError, match="unknown dataset 'mnist5'; did you mean 'mnist5k'"):
        find_source("mnist5")


def test_the_named_folder_comes_before_the_project_and_the_hub(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = find_source("tiny")
    assert (hub.folder, hub.identity) == (None, "hub:nobody/tiny")
    write(Path("data"))
    assert find_source("tiny").folder == Path("data/tiny")
    write(root)
    assert find_source("tiny").folder == root / "tiny"
    monkeypatch.delenv("FEDFISHER_DATA_DIR")
    assert find_source("tiny").folder == Path("data/tiny")


def test_a_data_set_without_source_or_folder_is_refused(root: Path) -> None:
    message = "data set 'table' names no source on the hub and has no folder; set FEDFISHER_DATA_DIR to .*table/train"
    with pytest.raises(InputError, match=message):
        find_source("table")
    with pytest.raises(InputError, match="data set 'table' names no source on the hub to fetch it from"):
        fetch("table")
    assert not (Path("data") / "table").exists()
    arranged.write(root)
    assert find_source("table").folder == root / "table"


def test_the_identity_changes_with_the_files(root: Path) -> None:
    write(root)
    first = find_source("tiny").identity
    assert find_source("tiny").identity == first
    write(root, image=[grey(10), grey(21)])
    assert find_source("tiny").identity != first


def named(root: Path, cells: pa.Array) -> None:
    """Write both splits with these cells as images."""
    (root / "tiny").mkdir(exist_ok=True)
    for split in ("train", "test"):
        pq.write_table(pa.table({"image": cells, "label": [0, 1]}), root / "tiny" / f"{split}.parquet")


IN_CELLS = pa.struct({"bytes": pa.binary(), "path": pa.string()})


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.struct({"path": pa.string()}), IN_CELLS])
@pytest.mark.parametrize("relative", [True, False])
def test_the_identity_covers_the_files_that_images_are_named_by(root: Path, kind: pa.DataType, relative: bool) -> None:
    files = [Path("one.png") if relative else root / "one.png", root / "two.png"]
    for file, value in zip(files, (10, 20), strict=True):
        file.write_bytes(grey(value))
    paths = [str(file) for file in files]
    named(root, pa.array([{"path": path} for path in paths] if pa.types.is_struct(kind) else paths, kind))
    first = find_source("tiny").identity
    assert read().train.inputs[:, 0, 0, 0].tolist() == [10, 20]
    assert find_source("tiny").identity == first
    files[0].write_bytes(grey(30))
    assert find_source("tiny").identity != first
    assert read().train.inputs[:, 0, 0, 0].tolist() == [30, 20]
    files[0].write_bytes(grey(10))
    assert find_source("tiny").identity == first


def test_the_path_of_an_image_in_the_cell_means_nothing(root: Path) -> None:
    named(root, pa.array([{"bytes": grey(value), "path": "elsewhere.png"} for value in (1, 2)], IN_CELLS))
    assert ";files:" not in find_source("tiny").identity
    assert read().train.inputs[:, 0, 0, 0].tolist() == [1, 2]


@pytest.mark.parametrize("path", ["absent.png", ".", "pipe", "https://nobody.example/1.png", "zip://1.png::all.zip"])
def test_what_names_no_file_is_refused_by_its_row(root: Path, path: str) -> None:
    os.mkfifo("pipe")
    named(root, pa.array([{"bytes": grey(1), "path": None}, {"bytes": None, "path": path}], IN_CELLS))
    message = (
        f"split 'train' of data set 'tiny', row 1: .* its cell names '{path}', which is no file here; allowed: a file"
    )
    with pytest.raises(InputError, match=message):
        find_source("tiny")


@pytest.mark.parametrize("sample", [Sample(5), Sample(held_out=4), Sample(6, 3)])
def test_a_sample_is_decoded_as_a_part_of_the_whole(root: Path, sample: Sample) -> None:
    tiny.write_tiny(root)
    whole, sampled = read(group_column="maker"), read(group_column="maker", sample=sample)
    used, apart = (torch.from_numpy(rows) for rows in sample.draw(whole.train.labels.numpy()))
    for name in ("inputs", "labels", "groups"):
        assert torch.equal(getattr(sampled.train, name), getattr(whole.train, name)[used])
        tests = getattr(whole.train, name)[apart] if sample.held_out else getattr(whole.test, name)
        assert torch.equal(getattr(sampled.test, name), tests)


def test_no_image_is_decoded_that_is_not_used(root: Path) -> None:
    labels = [row % 3 for row in range(30)]
    used, apart = Sample(6, 6).draw(np.array(labels))
    pictures = [grey(row) if row in {*used, *apart} else b"no image" for row in range(30)]
    write(root, image=pictures, label=labels)
    sampled = read(sample=Sample(6, 6))
    assert sampled.train.inputs[:, 0, 0, 0].tolist() == used.tolist()
    assert sampled.test.inputs[:, 0, 0, 0].tolist() == apart.tolist()
    with pytest.raises(InputError, match=r"the image can't be read"):
        read()


def test_images_of_many_row_groups_are_read_in_order(root: Path) -> None:
    images = pa.array([{"bytes": grey(row % 256), "path": None} for row in range(600)], IN_CELLS)
    (root / "tiny").mkdir()
    for split in ("train", "test"):
        table = pa.table({"image": images, "label": [0] * 600})
        pq.write_table(table, root / "tiny" / f"{split}.parquet", row_group_size=7)
    assert read().train.inputs[:, 0, 0, 0].tolist() == [row % 256 for row in range(600)]


@pytest.mark.parametrize(
    "description", [b"no json", b"[]", b'{"info": {}}', b'{"info": {"features": {"label": {"names": 7}}}}']
)
def test_a_damaged_description_of_the_columns_is_refused(root: Path, description: bytes) -> None:
    write(root)
    for split in ("train", "test"):
        path = root / "tiny" / f"{split}.parquet"
        pq.write_table(pq.read_table(path).replace_schema_metadata({"huggingface": description}), path)
    with pytest.raises(InputError, match=r"split 'train' of data set 'tiny'.* metadata"):
        read()


@pytest.mark.parametrize(
    ("name", "size", "last", "shape"),
    [
        ("emnist_letters", 28, 25, (1, 28, 28)),
        ("emnist_balanced", 28, 46, (1, 28, 28)),
        ("tiny_imagenet", 64, 199, (3, 32, 32)),
    ],
)
def test_data_sets_of_many_classes_are_read_up_to_their_last(
    root: Path, name: str, size: int, last: int, shape: tuple[int, ...]
) -> None:
    pictures = [grey(value, size=(size, size)) for value in (10, 20)]
    write(root, name, image=pictures, label=[0, last])
    dataset = read(name)
    assert dataset.train.inputs[:, 0, 0, 0].tolist() == [10, 20]
    assert dataset.test.inputs.shape == (2, *shape)
    assert dataset.train.labels.tolist() == [0, last]
    write(root, name, image=pictures, label=[0, last + 1])
    with pytest.raises(InputError, match=f"label {last + 1} is out of range; allowed: 0 to {last}"):
        read(name)


def test_where_the_hub_has_no_test_labels_its_validation_images_are_tested_on(root: Path) -> None:
    # A repository's own files, which the hub's library takes from a folder of its name in the working directory.
    copy = Path("zh-plus/tiny-imagenet")
    tiny.write_split(copy / "data" / "train-00000.parquet", {"image": [grey(10), grey(20)], "label": [0, 1]})
    tiny.write_split(copy / "data" / "valid-00000.parquet", {"image": [grey(30)], "label": [2]})
    files = [f"{{split: {split}, path: data/{split}-*}}" for split in ("train", "valid")]
    (copy / "README.md").write_text(
        f"---\nconfigs:\n- {{config_name: default, data_files: [{', '.join(files)}]}}\n---\n"
    )
    dataset = read("tiny_imagenet")
    assert dataset.train.labels.tolist() == [0, 1]
    assert dataset.test.labels.tolist() == [2]
    assert fetch("tiny_imagenet") == Path("data/tiny_imagenet")
    assert read("tiny_imagenet").test.labels.tolist() == [2]
