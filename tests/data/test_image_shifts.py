"""What shifts do to images, pixel by pixel."""

import math

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor

from fedfisher_core.data.shifts import add_noise, blur, flatten_contrast, rotate


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def turned(image: Tensor, degrees: float) -> Tensor:
    """Turn one image, a pixel at a time: each is a weighted mean of the four nearest to where it was."""
    height, width = image.shape
    angle, result = math.radians(degrees), torch.zeros(height, width)
    for row in range(height):
        for column in range(width):
            # Upwards and to the right, a point turns counter-clockwise by the angle.
            up, right = (height - 1) / 2 - row, column - (width - 1) / 2
            old_right = right * math.cos(angle) + up * math.sin(angle)
            old_up = up * math.cos(angle) - right * math.sin(angle)
            y, x = (height - 1) / 2 - old_up, old_right + (width - 1) / 2
            for source_row in range(height):
                for source_column in range(width):
                    near = max(0.0, 1 - abs(y - source_row)) * max(0.0, 1 - abs(x - source_column))
                    result[row, column] += near * image[source_row, source_column]
    return result


@pytest.mark.parametrize(("height", "width"), [(5, 5), (6, 6), (4, 7)])
@pytest.mark.parametrize("degrees", [-140.0, -30.0, 12.5, 45.0, 100.0])
def test_a_turned_image_is_that_of_a_slow_transcription(height: int, width: int, degrees: float) -> None:
    images = drawn(2, 3, height, width)
    found = rotate(images, degrees)
    for index in range(2):
        for channel in range(3):
            assert torch.allclose(found[index, channel], turned(images[index, channel], degrees), atol=1e-6)


def test_to_turn_by_0_changes_no_bit() -> None:
    for shape in ((3, 1, 5, 5), (2, 3, 28, 28), (2, 1, 4, 7)):
        assert torch.equal(rotate(drawn(*shape), 0.0), drawn(*shape))


@pytest.mark.parametrize("size", [5, 6, 28])
@pytest.mark.parametrize(("degrees", "quarters"), [(90, 1), (-90, -1), (180, 2), (-270, 1)])
def test_right_angles_are_exact(size: int, degrees: float, quarters: int) -> None:
    images = drawn(2, 3, size, size)
    assert torch.equal(rotate(images, degrees), torch.rot90(images, quarters, (2, 3)))


def test_what_comes_from_outside_is_black() -> None:
    found = rotate(torch.ones(1, 1, 9, 9), 45.0)[0, 0]
    assert found[0, 0] == found[0, 8] == found[8, 0] == found[8, 8] == 0
    assert torch.allclose(found[3:6, 3:6], torch.ones(3, 3))


@pytest.mark.parametrize("sigma", [0.25, 0.5, 1.0, 2.5, 30.0])
@pytest.mark.parametrize(("height", "width"), [(6, 6), (5, 9), (28, 28)])
def test_a_blur_is_gaussian_and_keeps_the_mean(sigma: float, height: int, width: int) -> None:
    images = drawn(3, 2, height, width).double()
    found = blur(images, sigma)
    assert torch.allclose(found.mean((2, 3)), images.mean((2, 3)), atol=1e-12)
    reach = math.ceil(4 * sigma)
    for index in range(3):
        for channel in range(2):
            expected = gaussian_filter(images[index, channel].numpy(), sigma, mode="reflect", radius=reach)
            assert np.allclose(found[index, channel].numpy(), expected, atol=1e-12)
    assert float(found.std()) < float(images.std())


def test_contrast_is_lost_around_the_mean_of_each_image_and_channel() -> None:
    images = drawn(2, 3, 4, 5)
    found = flatten_contrast(images, 0.75)
    for index in range(2):
        for channel in range(3):
            mean = images[index, channel].mean()
            assert torch.allclose(found[index, channel], mean + (images[index, channel] - mean) / 4)


@pytest.mark.parametrize("sigma", [0.1, 2.0])
def test_noise_has_the_deviation_that_is_asked_for(sigma: float) -> None:
    images = drawn(50, 3, 28, 28)
    noise = add_noise(images, sigma, torch.Generator().manual_seed(3)) - images
    # Of 117,600 numbers: the deviation errs by 0.2 %.
    assert float(noise.std()) == pytest.approx(sigma, rel=0.01)
    assert abs(float(noise.mean())) < 0.02 * sigma
    assert float((noise.abs() < sigma).double().mean()) == pytest.approx(0.6827, abs=0.01)
