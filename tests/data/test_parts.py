"""A data set that is made of others: digits of two domains."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from fedfisher_core.data.counting import count_training
from fedfisher_core.data.hub import fetch
from fedfisher_core.data.layouts import Images, Vectors
from fedfisher_core.data.sampling import Sample
from fedfisher_core.data.sources import find_source, read_dataset
from fedfisher_core.data.specs import DatasetSpec, datasets
from fedfisher_core.data.tensors import select
from fedfisher_core.engine.errors import InputError
from fedfisher_core.federation.decoding import DecodeData
from tests import tiny

pytestmark = pytest.mark.usefixtures("root")

NAMES = [str(digit) for digit in range(10)]
REAL = Path(os.environ.get("FEDFISHER_DATA_DIR", "data")).absolute()


def images(count: int, size: int, *, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (count, size, size)).astype(np.uint8)


def write(
    root: Path, name: str, train: NDArray[np.uint8], test: NDArray[np.uint8], names: Sequence[str] = NAMES
) -> None:
    for split, pixels in (("train", train), ("test", test)):
        columns = {"image": list(map(tiny.png, pixels)), "label": [(3 * row) % 10 for row in range(len(pixels))]}
        tiny.write_split(root / name / f"{split}.parquet", columns, class_names=names)


def write_digits(root: Path) -> None:
    write(root, "mnist", images(5, 28, seed=1), images(2, 28, seed=2))
    write(root, "usps", images(4, 16, seed=3), images(3, 16, seed=4))


def test_parts_stand_one_behind_the_other_in_one_size(root: Path) -> None:
    write_digits(root)
    dataset = read_dataset(find_source("digits"), group_column="domain")
    assert dataset.spec is datasets.get("digits")
    assert dataset.group_names == ("mnist", "usps")
    assert dataset.class_names == tuple(NAMES)
    for split, (first, second, seed) in ((dataset.train, (5, 4, 1)), (dataset.test, (2, 3, 2))):
        assert split.groups is not None
        assert split.groups.tolist() == [0] * first + [1] * second
        assert split.labels.tolist() == [(3 * row) % 10 for count in (first, second) for row in range(count)]
        assert np.array_equal(split.inputs[:first, 0].numpy(), images(first, 28, seed=seed))
        for made, pixels in zip(split.inputs[first:, 0], images(second, 16, seed=seed + 2), strict=True):
            resized = Image.fromarray(pixels).resize((28, 28), Image.Resampling.BILINEAR)
            assert np.array_equal(made.numpy(), np.array(resized))


def test_one_pair_of_constants_normalises_all_parts(root: Path) -> None:
    write_digits(root)
    dataset = read_dataset(find_source("digits"))
    assert dataset.train.groups is None
    expected = (dataset.train.inputs.double() / 255 - 0.1307) / 0.3081
    assert torch.allclose(select(dataset.train, dataset.spec).inputs.double(), expected, atol=1e-5)


def test_a_part_alone_keeps_its_size(root: Path) -> None:
    write_digits(root)
    assert read_dataset(find_source("usps")).train.inputs.shape == (4, 1, 16, 16)


def test_parts_are_counted_as_they_are_read(root: Path) -> None:
    write_digits(root)
    counted = count_training(find_source("digits"), group_column="domain")
    assert counted is not None
    assert counted.groups == {"mnist": 5, "usps": 4}
    assert counted.labels.tolist() == read_dataset(find_source("digits")).train.labels.bincount(minlength=10).tolist()
    sample = Sample(examples=3, held_out=2)
    counted = count_training(find_source("digits"), sample=sample, group_column="domain")
    sampled = read_dataset(find_source("digits"), group_column="domain", sample=sample)
    assert counted is not None
    assert counted.groups is not None
    assert sampled.train.groups is not None
    codes = sampled.train.groups.tolist()
    assert dict(counted.groups) == {name: codes.count(code) for code, name in enumerate(("mnist", "usps"))}


def test_the_identity_is_of_all_parts(root: Path) -> None:
    write_digits(root)
    found = {find_source("digits").identity}
    assert "mnist=parquet:" in (*found,)[0]
    for name in ("mnist", "usps"):
        side = datasets.get(name).inputs.shape[-1]
        write(root, name, images(5, side, seed=5), images(2, side, seed=6))
        found.add(find_source("digits").identity)
    assert len(found) == 3


def test_a_part_without_a_folder_comes_from_the_hub(root: Path) -> None:
    write(root, "mnist", images(5, 28, seed=1), images(2, 28, seed=2))
    source = find_source("digits")
    assert source.identity.endswith(";usps=hub:flwrlabs/usps")
    # Nothing is counted that is still to be fetched.
    assert count_training(source, group_column="domain") is None


@pytest.mark.parametrize("sample", [Sample(3), Sample(held_out=4), Sample(2, 5), Sample(9)])
def test_a_sample_of_parts_is_decoded_as_a_part_of_the_whole(root: Path, sample: Sample) -> None:
    write_digits(root)
    whole = read_dataset(find_source("digits"), group_column="domain")
    sampled = read_dataset(find_source("digits"), group_column="domain", sample=sample)
    used, apart = (torch.from_numpy(rows) for rows in sample.draw(whole.train.labels.numpy()))
    for name in ("inputs", "labels", "groups"):
        assert torch.equal(getattr(sampled.train, name), getattr(whole.train, name)[used])
        tests = getattr(whole.train, name)[apart] if sample.held_out else getattr(whole.test, name)
        assert torch.equal(getattr(sampled.test, name), tests)


def test_another_column_than_that_of_the_parts_is_refused(root: Path) -> None:
    write_digits(root)
    message = r"partition\.column='writer': data set 'digits' has no such column; allowed: domain"
    with pytest.raises(InputError, match=message):
        count_training(find_source("digits"), group_column="writer")
    with pytest.raises(InputError, match=message):
        read_dataset(find_source("digits"), group_column="writer")


def test_parts_whose_classes_differ_are_matched_by_name_or_refused(root: Path) -> None:
    write_digits(root)
    write(root, "usps", images(2, 16, seed=1), images(2, 16, seed=1), names=[*NAMES[1:], "0"])
    assert read_dataset(find_source("digits")).train.labels[5:].tolist() == [1, 4]
    write(root, "usps", images(2, 16, seed=1), images(2, 16, seed=1), names=[*NAMES[1:], "ten"])
    message = r"data set 'digits' has 10 classes, but 11 are named \(part 'mnist': '0', .*; part 'usps': '1', .*'ten'\)"
    with pytest.raises(InputError, match=message):
        read_dataset(find_source("digits"))


def test_parts_that_do_not_fit_are_refused(root: Path) -> None:
    write(root, "cifar100", images(2, 32, seed=1), images(2, 32, seed=1), names=[str(one) for one in range(100)])
    write(root, "mnist", images(2, 28, seed=1), images(2, 28, seed=1))
    spec = DatasetSpec("odd_parts", None, 10, Images(1, 28, 28), client_column="d", parts=("mnist", "cifar100"))
    datasets.add(spec.name, spec)
    with pytest.raises(InputError, match=r"data set 'odd_parts': its part 'cifar100' has 100 classes, 3 x 32 x 32"):
        find_source("odd_parts")


def test_parts_are_fetched_one_by_one() -> None:
    with pytest.raises(
        InputError, match="data set 'digits' is made of others, which are fetched one by one: mnist, usps"
    ):
        fetch("digits")


@pytest.mark.parametrize("options", [{}, {"client_column": "d", "hub": "nobody/digits"}])
def test_a_data_set_of_parts_names_their_column_and_no_hub(options: dict[str, str]) -> None:
    hub = options.pop("hub", None)
    with pytest.raises(InputError, match=r"data set 'odd': parts=\('a', 'b'\) with client_column="):
        DatasetSpec("odd", hub, 10, Images(1, 28, 28), parts=("a", "b"), **options)


@pytest.mark.parametrize(
    "options",
    [{"inputs": Images(1, 6, 6)}, {"inputs": Vectors(2), "mean": (0.0, 0.0)}, {"inputs": Vectors(1), "std": (1.0,)}],
)
def test_clients_scale_only_numbers_that_no_constants_scale(options: dict[str, object]) -> None:
    with pytest.raises(InputError, match="data set 'odd': impute='mean', but it has"):
        DatasetSpec("odd", None, 3, impute="mean", **options)


@pytest.mark.skipif(
    not all((REAL / name).is_dir() for name in ("mnist", "usps")),
    reason="MNIST and USPS are not below FEDFISHER_DATA_DIR",
)
def test_real_digits_are_told_apart_by_their_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(REAL))
    counted = count_training(find_source("digits"), group_column="domain")
    assert counted is not None
    assert counted.groups == {"mnist": 60_000, "usps": 7291}


def test_what_is_decoded_is_named_by_how_its_parts_are_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_digits(root)

    def key() -> str:
        return DecodeData(name="data", dataset="digits", column="domain", sample=Sample()).key

    before = key()
    assert key() == before
    usps = datasets.get("usps")
    monkeypatch.setitem(datasets._things, "usps", replace(usps, label_columns=("other",)))
    assert key() != before
