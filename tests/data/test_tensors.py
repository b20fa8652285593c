import dataclasses
import hashlib
import math
import statistics
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedfisher_core.data.layouts import Tokens, Vectors
from fedfisher_core.data.sources import find_source, read_dataset
from fedfisher_core.data.specs import DatasetSpec, Impute, datasets
from fedfisher_core.data.tensors import Split, augment, normalise, observe, select


def drawn(channels: int = 3) -> Split:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (6, channels, 5, 5), generator=generator).to(torch.uint8)
    return Split(inputs=images, labels=torch.tensor([3, 1, 4, 1, 5, 9]))


@pytest.mark.parametrize("name", ["cifar10", "svhn", "mnist"])
def test_pixels_are_normalised_channel_by_channel(name: str) -> None:
    spec = datasets.get(name)
    split = drawn(spec.inputs.channels)
    original = split.inputs.clone()
    normalised = select(split, spec).inputs
    assert normalised.dtype == torch.float32
    for image in range(6):
        for channel in range(spec.inputs.channels):
            for row in range(5):
                for column in range(5):
                    pixel = int(split.inputs[image, channel, row, column])
                    expected = (pixel / 255 - spec.mean[channel]) / spec.std[channel]
                    assert normalised[image, channel, row, column].item() == pytest.approx(expected, abs=1e-5)
    assert torch.equal(split.inputs, original)


def test_normalised_pixels_are_what_they_always_were(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(tiny_folder))
    dataset = read_dataset(find_source("tiny"))
    examples = select(dataset.train, dataset.spec)
    content = hashlib.sha256(examples.inputs.numpy().tobytes() + examples.labels.numpy().tobytes())
    assert content.hexdigest()[:16] == "8f30d54651d8a78f"
    augmented = augment(examples.inputs, torch.Generator().manual_seed(5)).contiguous()
    assert hashlib.sha256(augmented.numpy().tobytes()).hexdigest()[:16] == "7e95c7c0416f5d9b"


def test_numbers_are_normalised_feature_by_feature() -> None:
    rows = torch.tensor([[1.0, 5.0], [3.0, -1.0]])
    split = Split(inputs=rows.clone(), labels=torch.tensor([0, 1]))
    spec = DatasetSpec("pair", None, 2, Vectors(2), mean=(1.0, 2.0), std=(2.0, 0.5))
    assert select(split, spec).inputs.tolist() == [[0.0, 6.0], [1.0, -6.0]]
    assert select(split, spec, torch.tensor([1])).inputs.tolist() == [[1.0, -6.0]]
    plain = select(split, dataclasses.replace(spec, mean=(), std=())).inputs
    assert torch.equal(plain, rows)
    plain.zero_()
    assert torch.equal(split.inputs, rows)


def test_tokens_are_left_as_they_are() -> None:
    split = Split(inputs=torch.tensor([[3, 0], [1, 2]]), labels=torch.tensor([0, 1]))
    spec = DatasetSpec("words", None, 2, Tokens(2, 4))
    found = select(split, spec, torch.tensor([1, 0]))
    assert found.inputs.dtype == torch.int64
    assert found.inputs.tolist() == [[1, 2], [3, 0]]


def test_examples_are_selected_in_the_order_asked_for() -> None:
    split = drawn()
    spec = datasets.get("cifar10")
    whole = select(split, spec)
    some = select(split, spec, torch.tensor([4, 0, 4]))
    assert some.labels.tolist() == [5, 3, 5]
    assert torch.equal(some.inputs, whole.inputs[[4, 0, 4]])
    assert (len(some), len(whole), len(select(split, spec, torch.tensor([], dtype=torch.int64)))) == (3, 6, 0)


def test_other_constants_give_other_inputs() -> None:
    spec = datasets.get("cifar10")
    plain = dataclasses.replace(spec, mean=(0.0,) * 3, std=(1.0,) * 3)
    assert torch.allclose(select(drawn(), plain).inputs, drawn().inputs / 255)


def test_made_up_pixels_are_normalised_as_decoded_ones() -> None:
    spec = datasets.get("cifar10")
    pixels = drawn().inputs / 255
    before = pixels.clone()
    assert torch.allclose(normalise(pixels, spec), select(drawn(), spec).inputs, atol=1e-6)
    assert torch.equal(pixels, before)


def crop(image: Tensor, top: int, left: int, *, padding: int, mirrored: bool) -> Tensor:
    """Pad with zeros, cut and mirror one image, pixel by pixel."""
    channels, height, width = image.shape
    result = torch.zeros_like(image)
    for channel in range(channels):
        for row in range(height):
            for column in range(width):
                source_row = top + row - padding
                source_column = left + (width - 1 - column if mirrored else column) - padding
                if 0 <= source_row < height and 0 <= source_column < width:
                    result[channel, row, column] = image[channel, source_row, source_column]
    return result


@pytest.mark.parametrize("padding", [1, 4])
def test_each_image_is_one_of_its_crops(padding: int) -> None:
    inputs = torch.randn(40, 2, 5, 6, generator=torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(7)
    augmented = augment(inputs, generator, padding=padding)
    # The same draws, one image at a time.
    again = torch.Generator().manual_seed(7)
    offsets = torch.randint(0, 2 * padding + 1, (2, 40), generator=again)
    mirrored = torch.rand(40, generator=again) < 0.5
    for index, image in enumerate(inputs):
        top, left = offsets[:, index].tolist()
        expected = crop(image, top, left, padding=padding, mirrored=bool(mirrored[index]))
        assert torch.equal(augmented[index], expected), index
    assert 10 < int(mirrored.sum()) < 30


def test_all_crops_occur_and_images_differ_from_each_other() -> None:
    # A single pixel in the middle shows where an image was moved; the one next to it shows the mirroring.
    image = torch.zeros(1, 1, 5, 5)
    image[0, 0, 2, 2] = 1
    image[0, 0, 2, 3] = 2
    moved = augment(image.expand(2000, 1, 5, 5), torch.Generator().manual_seed(0), padding=1)
    seen = set()
    for one in moved[:, 0]:
        row, column = (one == 1).nonzero()[0].tolist()
        beside = (one == 2).nonzero()[0].tolist()
        seen.add((row, column, beside[1] - column))
    assert seen == {(row, column, side) for row in (1, 2, 3) for column in (1, 2, 3) for side in (-1, 1)}


def test_augmentation_depends_on_its_generator_alone() -> None:
    inputs = torch.randn(16, 1, 6, 6)
    torch.manual_seed(1)
    first = augment(inputs, torch.Generator().manual_seed(3))
    torch.manual_seed(2)
    assert torch.equal(augment(inputs, torch.Generator().manual_seed(3)), first)
    assert not torch.equal(augment(inputs, torch.Generator().manual_seed(4)), first)


NAN = math.nan


def table(rows: int, *, seed: int, features: int = 4) -> Tensor:
    """Draw numbers of very different sizes, of which about a third are missing."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(rows, features, generator=generator) * torch.tensor([1.0, 50.0, 0.01, 3.0]) + 7
    return torch.where(torch.rand(rows, features, generator=generator) < 0.3, NAN, numbers)


def transcribed(own: list[list[float]], row: list[float], impute: Impute) -> list[float]:
    """What one client makes of a row, feature by feature, with Python's statistics of what it observed."""
    made = []
    for feature, number in enumerate(row):
        observed = [one[feature] for one in own if not math.isnan(one[feature])]
        if not observed or len(set(observed)) == 1:
            made.append(0.0)
            continue
        fill = statistics.fmean(observed) if impute == "mean" else statistics.median(observed)
        filled = fill if math.isnan(number) else number
        made.append((filled - statistics.fmean(observed)) / statistics.pstdev(observed))
    return made


@pytest.mark.parametrize("impute", ["mean", "median"])
def test_rows_are_filled_and_scaled_by_their_own_clients_statistics(impute: Impute) -> None:
    parts = [table(rows, seed=rows) for rows in (1, 8, 21)]
    parts[1][:, 2] = NAN
    parts[2][:, 3] = 5.5
    scaling = observe(parts, impute)
    rows, clients = table(30, seed=99), torch.arange(30) % 3
    expected = [
        transcribed(parts[client].double().tolist(), row, impute)
        for row, client in zip(rows.double().tolist(), clients.tolist(), strict=True)
    ]
    made = scaling.apply(rows, clients)
    assert made.dtype == torch.float32
    assert torch.allclose(made, torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_what_is_missing_is_average_by_the_mean_and_may_not_be_by_the_median() -> None:
    own, missing = torch.tensor([[0.0], [0.0], [3.0], [NAN]]), torch.tensor([[NAN]])
    assert observe([own], "mean").apply(missing, torch.tensor([0])).tolist() == [[0.0]]
    # The numbers 0, 0 and 3 have the mean 1 and the deviation sqrt(2).
    assert observe([own], "median").apply(missing, torch.tensor([0])).item() == pytest.approx(-1 / math.sqrt(2))


def test_a_clients_statistics_are_of_its_own_rows_alone() -> None:
    own, other = table(12, seed=1), table(12, seed=2)
    one, two = observe([own, other], "median"), observe([own, other * 100 + 3], "median")
    for name in ("fill", "mean", "std"):
        assert torch.equal(getattr(one, name)[0], getattr(two, name)[0])
        assert not torch.equal(getattr(one, name)[1], getattr(two, name)[1])


@pytest.mark.parametrize("impute", ["mean", "median"])
@pytest.mark.parametrize("own", [[NAN, NAN, NAN], [0.1, 0.1, NAN], [0.1, 0.1, 0.1]], ids=["never", "alike", "all"])
def test_a_feature_without_a_scale_is_0_whatever_a_row_holds(own: list[float], impute: Impute) -> None:
    scaling = observe([torch.tensor(own)[:, None]], impute)
    assert scaling.std.tolist() == [[0.0]]
    rows = torch.tensor([[0.1], [NAN], [250.0], [-3e30]])
    assert scaling.apply(rows, torch.zeros(4, dtype=torch.int64)).tolist() == [[0.0]] * 4


def test_tensors_share_no_memory_as_files_demand() -> None:
    scaling = observe([table(5, seed=3)], "mean")
    assert len({tensor.data_ptr() for tensor in vars(scaling).values()}) == 3
