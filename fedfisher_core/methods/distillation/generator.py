"""The convolutional generator of DENSE, whose weights are drawn anew for every batch of images."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.data.layouts import Images, require_images
from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.spec import ModelSpec

SMALLEST = 4
"""Height and width of the smallest images that the generator makes; the first maps are then 1x1."""

_FILTERS = 64
_SLOPE = 0.2
_DEVIATION = 0.02


def require_room(spec: ModelSpec) -> None:
    """Refuse, by an InputError, examples that are no images, or smaller than the generator makes."""
    images = require_images(spec.inputs, "the generator")
    if min(images.height, images.width) < SMALLEST:
        raise InputError(
            f"images of {images.height}x{images.width} pixels; the generator makes {SMALLEST}x{SMALLEST} or more"
        )


class UpsampledConvolution(nn.Module):
    """A 3x3 convolution of maps whose pixels are repeated to 2x2.

    A pixel's four copies reach 4x4 outputs together. So one transposed convolution with stride 2 does the same
    with 16 products where there are 36.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, 3, 3))

    def forward(self, maps: Tensor) -> Tensor:
        """From shape (batch, inputs, height, width) to (batch, outputs, 2 height, 2 width)."""
        kernel = (self.weight.flatten(2) @ _reach().to(self.weight).T).unflatten(2, (4, 4)).transpose(0, 1)
        return functional.conv_transpose2d(maps, kernel, stride=2, padding=1)


def _reach() -> Tensor:
    """Which of a kernel's 3x3 elements meet which of the 4x4 outputs around 2x2 copies, shape (16, 9)."""
    line = torch.tensor([[0.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    return torch.kron(line, line)


class Generator(nn.Module):
    """Noise to images: a linear layer, two convolutions of maps that are doubled in size, and one more.

    Args:
        images: their size; where height or width is no multiple of 4, larger images are cut on all sides.
        latent: numbers of noise an image.
    """

    def __init__(self, *, images: Images, latent: int) -> None:
        super().__init__()
        self.images = images
        self.first = (-(-images.height // 4), -(-images.width // 4))
        self.linear = nn.Linear(latent, 2 * _FILTERS * self.first[0] * self.first[1])
        self.maps = nn.Sequential(
            nn.BatchNorm2d(2 * _FILTERS, track_running_stats=False),
            UpsampledConvolution(2 * _FILTERS, 2 * _FILTERS),
            nn.BatchNorm2d(2 * _FILTERS, track_running_stats=False),
            nn.LeakyReLU(_SLOPE, inplace=True),
            UpsampledConvolution(2 * _FILTERS, _FILTERS),
            nn.BatchNorm2d(_FILTERS, track_running_stats=False),
            nn.LeakyReLU(_SLOPE, inplace=True),
            nn.Conv2d(_FILTERS, images.channels, kernel_size=3, padding=1),
        )

    def forward(self, noise: Tensor) -> Tensor:
        """Make images from noise of shape (batch, latent).

        Returns:
            Pixels between 0 and 1, shape (batch, channels, height, width).
        """
        maps = self.linear(noise).reshape(len(noise), -1, *self.first)
        images = self.maps(maps.contiguous(memory_format=torch.channels_last))
        top, left = (images.shape[-2] - self.images.height) // 2, (images.shape[-1] - self.images.width) // 2
        return images[..., top : top + self.images.height, left : left + self.images.width].sigmoid()


def draw_generator(*, images: Images, latent: int, generator: torch.Generator, device: torch.device) -> Generator:
    """Draw a generator's weights: N(0, 0.02) for layers, N(1, 0.02) for batch normalisation, and biases of 0.

    Args:
        images: their size, height and width at least SMALLEST.
        latent: numbers of noise an image.
        generator: draws the weights, on the CPU.
    """
    with torch.device("meta"):
        network = Generator(images=images, latent=latent)
    network.to_empty(device="cpu")
    for module in network.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if name == "bias":
                nn.init.zeros_(parameter)
            else:
                mean = 1.0 if isinstance(module, nn.BatchNorm2d) else 0.0
                nn.init.normal_(parameter, mean, _DEVIATION, generator=generator)
    return network.to(device)
