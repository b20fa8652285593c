import pytest
import scipy.fft
import torch
from torch import Tensor

from fedfisher_core.client.statistics.principal import LowFrequencies

SHAPE = (2, 6, 9)
INPUTS = torch.randn(5, 2 * 6 * 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def transform(inputs: Tensor) -> Tensor:
    return torch.from_numpy(scipy.fft.dctn(inputs.reshape(-1, *SHAPE).numpy(), axes=(2, 3), norm="ortho"))


@pytest.mark.parametrize("most", [1, 4, 6])
def test_they_are_the_lowest_of_the_cosine_transform(most: int) -> None:
    low = LowFrequencies(SHAPE, most)
    kept = low.keep(INPUTS)
    assert kept.shape == (5, low.size)
    assert torch.allclose(kept, transform(INPUTS)[:, :, :most, :most].flatten(1), atol=1e-12)


def test_no_more_are_kept_than_the_shorter_side_has_pixels() -> None:
    assert torch.equal(LowFrequencies(SHAPE, 100).keep(INPUTS), LowFrequencies(SHAPE, 6).keep(INPUTS))


def test_inputs_that_are_filled_have_these_frequencies_and_no_others() -> None:
    low = LowFrequencies(SHAPE, 4)
    kept = low.keep(INPUTS)
    filled = low.fill(kept)
    assert filled.shape == INPUTS.shape
    assert torch.allclose(low.keep(filled), kept, atol=1e-12)
    beyond = transform(filled)
    beyond[:, :, :4, :4] = 0
    assert beyond.abs().max() < 1e-12


def test_of_all_frequencies_nothing_is_lost() -> None:
    square = LowFrequencies((3, 6, 6), 6)
    assert torch.allclose(square.fill(square.keep(INPUTS)), INPUTS, atol=1e-12)


def test_constant_images_have_one_frequency() -> None:
    low = LowFrequencies((1, 4, 4), 1)
    assert torch.allclose(low.fill(low.keep(torch.full((1, 16), 3.0))), torch.full((1, 16), 3.0))


def test_rows_of_numbers_are_kept_whole() -> None:
    rows = LowFrequencies((108,), 4)
    assert rows.size == 108
    assert torch.equal(rows.keep(INPUTS), INPUTS)
    assert torch.equal(rows.fill(INPUTS), INPUTS)


@pytest.mark.parametrize(("shape", "most"), [(SHAPE, 1), (SHAPE, 4), (SHAPE, 6), ((108,), 4)])
def test_the_size_tells_how_many_were_kept(shape: tuple[int, ...], most: int) -> None:
    low = LowFrequencies(shape, most)
    found = LowFrequencies.of_size(shape, low.size)
    assert torch.equal(found.keep(INPUTS), low.keep(INPUTS))
