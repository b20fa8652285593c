"""The embedded digits."""

import hashlib
from pathlib import Path

import pytest

from fedfisher_core.data.sources import find_source, read_dataset
from fedfisher_core.data.tensors import Dataset


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The embedded data set, put into an empty working directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("embedded"))
        patch.delenv("FEDFISHER_DATA_DIR", raising=False)
        source = find_source("mnist5k")
        assert source.folder == Path("data/mnist5k")
        names = sorted(path.name for path in Path("data").rglob("*"))
        assert names == [".writing", "mnist5k", "test.parquet", "train.parquet"]
        return read_dataset(source)


def test_the_embedded_digits_are_split_by_class(embedded: Dataset) -> None:
    assert embedded.train.inputs.shape == (4000, 1, 28, 28)
    assert embedded.test.inputs.shape == (1000, 1, 28, 28)
    assert embedded.train.labels.bincount().tolist() == [400] * 10
    assert embedded.test.labels.bincount().tolist() == [100] * 10
    assert embedded.class_names == tuple("0123456789")


def test_no_embedded_test_digit_is_a_training_digit(embedded: Dataset) -> None:
    seen = {image.numpy().tobytes() for image in embedded.train.inputs}
    assert not any(image.numpy().tobytes() in seen for image in embedded.test.inputs)


def test_the_embedded_digits_are_shuffled(embedded: Dataset) -> None:
    for split in (embedded.train, embedded.test):
        assert len(split.labels[:50].unique()) == 10


def test_the_embedded_digits_are_always_the_same(embedded: Dataset) -> None:
    content = hashlib.sha256()
    for split in (embedded.train, embedded.test):
        content.update(split.inputs.numpy().tobytes())
        content.update(split.labels.numpy().tobytes())
    assert content.hexdigest()[:16] == "09070f6641aecd2a"
