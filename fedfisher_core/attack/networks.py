"""The generator and the critic of the generative prior (Zhang et al. 2020, GMI)."""

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from fedfisher_core.errors import InputError

SMALLEST = 8
"""Height and width of the smallest images; three halvings leave one pixel."""

Network = TypeVar("Network", bound=nn.Module)

_KERNEL = 5
_SLOPE = 0.2
_DEVIATION = 0.02


class Generator(nn.Module):
    """Latents to images: a linear layer and three transposed convolutions, each of which doubles height and width.

    Args:
        channels: of the images.
        size: their height and width, at least SMALLEST; where it is no multiple of 8, larger images are cut on all
            sides.
        latent: numbers an image.
        width: filters of the last but one layer.

    Raises:
        InputError: the images are too small.
    """

    def __init__(self, *, channels: int, size: int, latent: int, width: int) -> None:
        super().__init__()
        require_size(size)
        self.size = size
        self.latent = latent
        self.first = -(-size // 8)
        units = 4 * width * self.first**2
        self.linear = nn.Sequential(nn.Linear(latent, units, bias=False), nn.BatchNorm1d(units), nn.ReLU())
        self.maps = nn.Sequential(
            *_doubled(4 * width, 2 * width),
            *_doubled(2 * width, width),
            nn.ConvTranspose2d(width, channels, _KERNEL, stride=2, padding=2, output_padding=1),
        )

    def forward(self, latents: Tensor) -> Tensor:
        """Make images.

        Args:
            latents: shape (batch, latent).

        Returns:
            Pixels between 0 and 1, shape (batch, channels, size, size).
        """
        images = self.maps(self.linear(latents).reshape(len(latents), -1, self.first, self.first))
        edge = (images.shape[-1] - self.size) // 2
        return images[..., edge : edge + self.size, edge : edge + self.size].sigmoid()


def _doubled(inputs: int, outputs: int) -> list[nn.Module]:
    """Layers from maps to maps of twice the height and width."""
    convolution = nn.ConvTranspose2d(inputs, outputs, _KERNEL, stride=2, padding=2, output_padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]


class Critic(nn.Module):
    """Images to scores: three convolutions, each of which halves height and width, and one over all that is left.

    Between them is layer normalisation, which mixes no images, as the gradient penalty demands; GMI's instance
    normalisation does neither, but leaves nothing of maps of one pixel.

    Args:
        channels: of the images.
        size: their height and width, at least SMALLEST.
        width: filters of the first layer.

    Raises:
        InputError: the images are too small.
    """

    def __init__(self, *, channels: int, size: int, width: int) -> None:
        super().__init__()
        require_size(size)
        self.maps = nn.Sequential(
            nn.Conv2d(channels, width, _KERNEL, stride=2, padding=2),
            nn.LeakyReLU(_SLOPE),
            *_halved(width, 2 * width),
            *_halved(2 * width, 4 * width),
            nn.Conv2d(4 * width, 1, -(-size // 8)),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Score images; higher is more real.

        Args:
            images: pixels between 0 and 1, shape (batch, channels, size, size).

        Returns:
            Shape (batch,).
        """
        return self.maps(images).flatten()


def _halved(inputs: int, outputs: int) -> list[nn.Module]:
    """Layers from maps to maps of half the height and width."""
    convolution = nn.Conv2d(inputs, outputs, _KERNEL, stride=2, padding=2)
    return [convolution, nn.GroupNorm(1, outputs), nn.LeakyReLU(_SLOPE)]


def require_size(size: int) -> None:
    """Make sure that images can be halved three times.

    Args:
        size: their height and width.

    Raises:
        InputError: they are too small.
    """
    if size < SMALLEST:
        raise InputError(f"images have {size}x{size} pixels; allowed for an attack: at least {SMALLEST}x{SMALLEST}")


def draw(network: Network, generator: torch.Generator) -> Network:
    """Draw initial weights: N(0, 0.02) for layers and N(1, 0.02) for normalisation; biases are 0.

    Args:
        network: initialised in place, on the CPU.
        generator: draws the weights, on the CPU.

    Returns:
        The same network.
    """
    for module in network.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if name == "bias":
                nn.init.zeros_(parameter)
            else:
                mean = 1.0 if parameter.ndim == 1 else 0.0
                nn.init.normal_(parameter, mean, _DEVIATION, generator=generator)
    return network


def state_of(network: nn.Module, prefix: str) -> dict[str, Tensor]:
    """Name a network's parameters and buffers.

    Args:
        network: the network.
        prefix: put in front of each name, with a dot.

    Returns:
        Copies on the CPU.
    """
    return {f"{prefix}.{name}": tensor.detach().cpu().clone() for name, tensor in network.state_dict().items()}


def load_state(network: Network, state: Mapping[str, Tensor], prefix: str) -> Network:
    """Undo `state_of`.

    Args:
        network: of the same shape; loaded in place and put into evaluation mode.
        state: named tensors, other networks' among them.
        prefix: of this network's names.

    Returns:
        The same network.

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
