"""The generator and the critic of the generative prior (Zhang et al. 2020, GMI)."""

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from fedfisher_core.data.layouts import Images, Layout, require_images
from fedfisher_core.engine.errors import InputError

SMALLEST = 8
"""Height and width of the smallest images; three halvings leave one pixel."""

Network = TypeVar("Network", bound=nn.Module)

_KERNEL = 5
_SLOPE = 0.2
_DEVIATION = 0.02


class Generator(nn.Module):
    """Latents to images: a linear layer and three transposed convolutions, each of which doubles height and width.

    Args:
        images: their size, at least 8x8; where height or width is no multiple of 8, larger images are cut on all sides.
        latent: numbers an image.
        width: filters of the last but one layer.
    """

    def __init__(self, *, images: Images, latent: int, width: int) -> None:
        super().__init__()
        require_size(images)
        self.images = images
        self.latent = latent
        self.first = _eighths(images)
        units = 4 * width * self.first[0] * self.first[1]
        self.linear = nn.Sequential(nn.Linear(latent, units, bias=False), nn.BatchNorm1d(units), nn.ReLU())
        self.maps = nn.Sequential(
            *_doubled(4 * width, 2 * width),
            *_doubled(2 * width, width),
            nn.ConvTranspose2d(width, images.channels, _KERNEL, stride=2, padding=2, output_padding=1),
        )

    def forward(self, latents: Tensor) -> Tensor:
        """Make images from latents of shape (batch, latent).

        Returns:
            Pixels between 0 and 1, shape (batch, channels, height, width).
        """
        images = self.maps(self.linear(latents).reshape(len(latents), -1, *self.first))
        top, left = (images.shape[-2] - self.images.height) // 2, (images.shape[-1] - self.images.width) // 2
        return images[..., top : top + self.images.height, left : left + self.images.width].sigmoid()


def _doubled(inputs: int, outputs: int) -> list[nn.Module]:
    convolution = nn.ConvTranspose2d(inputs, outputs, _KERNEL, stride=2, padding=2, output_padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]


class Critic(nn.Module):
    """Images, at least 8x8, to scores: three convolutions that halve height and width, and one over what remains.

    Between them is layer normalisation. It mixes no images, as the gradient penalty demands. GMI's instance
    normalisation mixes none either, but leaves nothing of maps of one pixel.

    Args:
        width: filters of the first layer.
    """

    def __init__(self, *, images: Images, width: int) -> None:
        super().__init__()
        require_size(images)
        self.maps = nn.Sequential(
            nn.Conv2d(images.channels, width, _KERNEL, stride=2, padding=2),
            nn.LeakyReLU(_SLOPE),
            *_halved(width, 2 * width),
            *_halved(2 * width, 4 * width),
            nn.Conv2d(4 * width, 1, _eighths(images)),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Score images, pixels between 0 and 1; higher is more real, shape (batch,)."""
        return self.maps(images).flatten()


def _halved(inputs: int, outputs: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, _KERNEL, stride=2, padding=2)
    return [convolution, nn.GroupNorm(1, outputs), nn.LeakyReLU(_SLOPE)]


def _eighths(images: Images) -> tuple[int, int]:
    """Height and width after three halvings, each rounded up."""
    return -(-images.height // 8), -(-images.width // 8)


def require_size(layout: Layout) -> None:
    """Refuse, by an InputError, examples that are no images or can't be halved three times."""
    images = require_images(layout, "an attack")
    if min(images.height, images.width) < SMALLEST:
        raise InputError(
            f"images have {images.height}x{images.width} pixels; allowed for an attack: at least {SMALLEST}x{SMALLEST}"
        )


def draw(network: Network, generator: torch.Generator) -> Network:
    """Draw initial weights in place, on the CPU: N(0, 0.02) for layers, N(1, 0.02) for normalisation; biases are 0."""
    for module in network.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if name == "bias":
                nn.init.zeros_(parameter)
            else:
                mean = 1.0 if parameter.ndim == 1 else 0.0
                nn.init.normal_(parameter, mean, _DEVIATION, generator=generator)
    return network


def state_of(network: nn.Module, prefix: str) -> dict[str, Tensor]:
    """Copy a network's parameters and buffers to the CPU, by their names after a prefix and a dot."""
    return {f"{prefix}.{name}": tensor.detach().cpu().clone() for name, tensor in network.state_dict().items()}


def load_state(network: Network, state: Mapping[str, Tensor], prefix: str) -> Network:
    """Undo `state_of` in place, on a network of the same shape, and put it into evaluation mode.

    Args:
        state: named tensors; those of other networks have other prefixes.

    Raises:
        InputError: a tensor is missing, left over or of another shape.
    """
    start = f"{prefix}."
    own = {name.removeprefix(start): tensor for name, tensor in state.items() if name.startswith(start)}
    try:
        network.load_state_dict(own)
    except RuntimeError as error:
        raise InputError(f"the stored {prefix} is of another shape than its settings say: {error}") from error
    return network.eval()
