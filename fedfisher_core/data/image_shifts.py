"""What covariate shifts do to images: they turn, blur and flatten them, and add noise."""

import math

import torch
from torch import Tensor

# Far below what bilinear weights resolve in float32, and far above the error of a sine in float64.
_DECIMALS = 9
_DEVIATIONS = 4
"""How many standard deviations a blur reaches."""


def rotate(images: Tensor, degrees: float) -> Tensor:
    """Turn images counter-clockwise about their centres, black where nothing was; bilinear, and exact at right angles.

    The pixel at offset (r, c) from the centre is the one at (r cos t + c sin t, c cos t - r sin t) of the original.

    Args:
        images: shape (images, channels, height, width).
        degrees: the angle t.

    Returns:
        Images of the same shape.
    """
    height, width = images.shape[-2:]
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    down, across = (height - 1) / 2, (width - 1) / 2
    rows = torch.arange(height, dtype=torch.float64)[:, None] - down
    columns = torch.arange(width, dtype=torch.float64)[None, :] - across
    y = (rows * cosine + columns * sine + down).round(decimals=_DECIMALS)
    x = (columns * cosine - rows * sine + across).round(decimals=_DECIMALS)
    turned = torch.zeros_like(images)
    for row, column in ((row, column) for row in (y.floor(), y.floor() + 1) for column in (x.floor(), x.floor() + 1)):
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        weight = (1 - (y - row).abs()) * (1 - (x - column).abs()) * inside
        source = row.clamp(0, height - 1).long() * width + column.clamp(0, width - 1).long()
        turned += images.flatten(2)[..., source] * weight.to(images)
    return turned


def blur(images: Tensor, sigma: float) -> Tensor:
    """Blur images by a Gaussian whose part beyond an edge is mirrored back, so that an image keeps its mean.

    Args:
        images: shape (images, channels, height, width).
        sigma: standard deviation in pixels, positive.

    Returns:
        Images of the same shape.
    """
    vertical, horizontal = (_smoothing(size, sigma).to(images) for size in images.shape[-2:])
    return vertical @ images @ horizontal.T


def _smoothing(size: int, sigma: float) -> Tensor:
    """Matrix that blurs a line of pixels, whose rows and columns sum to 1."""
    reach = math.ceil(_DEVIATIONS * sigma)
    offsets = torch.arange(-reach, reach + 1)
    weights = torch.exp(-(offsets.double() ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    # Beyond an edge a line is read backwards, its last pixel twice: c b a | a b c | c b a.
    place = (torch.arange(size)[:, None] + offsets).remainder(2 * size)
    place = torch.minimum(place, 2 * size - 1 - place)
    return torch.zeros(size, size, dtype=torch.float64).scatter_add_(1, place, weights.expand(size, -1))


def flatten_contrast(images: Tensor, fraction: float) -> Tensor:
    """Bring the pixels of each image and channel closer to their mean (ImageNet-C, Hendrycks and Dietterich 2019).

    Args:
        images: shape (images, channels, height, width).
        fraction: of the distance that is lost.

    Returns:
        m + (1 - fraction) (x - m), where m is the mean.
    """
    mean = images.mean((2, 3), keepdim=True)
    return mean + (1 - fraction) * (images - mean)


def add_noise(images: Tensor, sigma: float, generator: torch.Generator) -> Tensor:
    """Add normal noise to every pixel; pixels below black and above white are left as they are.

    Args:
        images: shape (images, channels, height, width).
        sigma: standard deviation.
        generator: draws the noise, on the CPU.

    Returns:
        Images of the same shape.
    """
    return images + sigma * torch.randn(images.shape, generator=generator).to(images)
