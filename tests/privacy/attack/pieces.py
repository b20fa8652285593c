"""Parts of an attack that are small enough to be followed by hand."""

import torch
from torch import Tensor, nn

from fedfisher_core.privacy.attack.evaluator import Evaluator
from fedfisher_core.privacy.attack.gan import Gan
from tests.tiny import SIZE

PIXELS = SIZE**2


class Pixelwise(nn.Module):
    """A generator whose latents are its pixels, before a sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        self.latent = PIXELS
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, latents: Tensor) -> Tensor:
        return (self.scale * latents).sigmoid().unflatten(1, (1, SIZE, SIZE))


class Brightness(nn.Module):
    """A critic that takes bright images for real."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1).mean(1)


def pixelwise_gan() -> Gan:
    return Gan(generator=Pixelwise(), critic=Brightness(), distances=torch.zeros(0))


class Columns(nn.Module):
    """A classifier by the brightest column; the features are the columns' means."""

    def features(self, pixels: Tensor) -> Tensor:
        return pixels.mean((1, 2))

    def forward(self, pixels: Tensor) -> Tensor:
        return self.features(pixels)


def columns_evaluator() -> Evaluator:
    return Evaluator(Columns())


def blobs(count: int, *, size: int = 8, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Draw images that are bright in one of two corners, and say in which."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (count,), generator=generator)
    images = 0.1 * torch.rand(count, 1, size, size, generator=generator)
    half = size // 2
    images[labels == 0, :, :half, :half] += 0.8
    images[labels == 1, :, half:, half:] += 0.8
    return images, labels


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
