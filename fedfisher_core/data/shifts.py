"""Shifts: their levels, one for each client, and what they do to images and labels."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedfisher_core.data.layouts import Images, Layout
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.seeds import Stream, numpy_generator, torch_generator
from fedfisher_core.settings import SeededSetting, Shift, ShiftKind

# Finer than bilinear weights in float32, and coarser than the error of a sine in float64.
_DECIMALS = 9
_DEVIATIONS = 4
"""Reach of a blur, in standard deviations."""


def rotate(images: Tensor, degrees: float) -> Tensor:
    """Rotate images counter-clockwise about their centres; bilinear, exact at right angles, and black outside.

    The pixel at offset (r, c) from the centre is the one at (r cos t + c sin t, c cos t - r sin t) of the original.

    Args:
        images: shape (images, channels, height, width).
        degrees: the angle t.
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
    """
    vertical, horizontal = (_smoothing(size, sigma).to(images) for size in images.shape[-2:])
    return vertical @ images @ horizontal.T


def _smoothing(size: int, sigma: float) -> Tensor:
    """Matrix that blurs a line of pixels; its rows and columns sum to 1."""
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

    Returns:
        m + (1 - fraction) (x - m), where m is the mean.
    """
    mean = images.mean((2, 3), keepdim=True)
    return mean + (1 - fraction) * (images - mean)


def add_noise(images: Tensor, sigma: float, generator: torch.Generator) -> Tensor:
    """Add normal noise to every pixel, without a cut at black and white.

    Args:
        images: shape (images, channels, height, width).
        sigma: standard deviation; white is 1.
        generator: on the CPU.
    """
    return images + sigma * torch.randn(images.shape, generator=generator).to(images)


_TOGETHER = 1024
"""Number of images that are shifted at a time, which bounds the working memory."""


@dataclass(frozen=True)
class View:
    """How one client sees examples.

    Args:
        level: 0 for no change. Otherwise an angle in degrees (rotation), a standard deviation in pixels (blur), the
            part of contrast that is lost, a standard deviation where white is 1 (noise), or 1 for exchanged labels.
        names: the client's label for each true one; empty if they are the same.
        noise: seed and branch of the noise's generator.
    """

    kind: ShiftKind
    level: float
    names: tuple[int, ...]
    noise: tuple[int, int]

    @property
    def plain(self) -> bool:
        """Whether the client sees every example unchanged."""
        return self.level == 0

    def described(self) -> dict[str, Any]:
        """The view's settings besides seed and client, as JSON; empty for a plain one."""
        if self.plain:
            return {}
        return {"view": {"kind": self.kind, "level": self.level, **({"names": list(self.names)} if self.names else {})}}

    def images(self, pixels: Tensor) -> Tensor:
        """Shift images from 0 to 1, shape (images, channels, height, width), on the CPU.

        The result is the same tensor if nothing changes.
        """
        if self.plain or self.kind == "labels":
            return pixels
        generator = torch_generator(self.noise[0], Stream.SHIFT, self.noise[1])
        return torch.cat([self._shifted(part, generator) for part in pixels.split(_TOGETHER)])

    def _shifted(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        match self.kind:
            case "rotation":
                return rotate(pixels, self.level)
            case "blur":
                return blur(pixels, self.level)
            case "contrast":
                return flatten_contrast(pixels, self.level)
            case _:
                return add_noise(pixels, self.level, generator)

    def labels(self, labels: Tensor) -> Tensor:
        """The client's labels for true ones, int64, shape (examples,)."""
        return torch.tensor(self.names)[labels] if self.names else labels


@dataclass(frozen=True)
class Shifts:
    """How all clients of a federation see their examples.

    Args:
        levels: one a client; see `View`.
        names: for exchanged labels, the label that clients of level 1 give each true one.
    """

    kind: ShiftKind
    seed: int
    levels: tuple[float, ...]
    names: tuple[int, ...] = ()

    def of(self, client: int, *, test: bool = False) -> View:
        """One client's view of training or test images, whose noise differs."""
        names = self.names if self.levels[client] else ()
        return View(self.kind, self.levels[client], names, (self.seed, 1 + 2 * client + test))


def draw_shifts(setting: SeededSetting, classes: int) -> Shifts | None:
    """Choose how each client sees its examples; None without a shift.

    Let s be the shift's strength and M the number of clients. For shifts of images, client i has the i-th of M levels,
    evenly spread over [-s, s] for rotations and over [0, s] for others. For labels, s M clients (rounded) are drawn,
    and exchange labels. All classes, or as many drawn ones as the shift says, change labels in one random cycle.

    Raises:
        InputError: there are too few clients or classes for the shift.
    """
    shift, count = setting.shift, setting.clients
    if not shift:
        return None
    _require_clients(shift, count)
    if shift.kind != "labels":
        # This is exactly 0 for the middle one of an odd number of clients.
        places = [2 * i / (count - 1) - 1 if shift.kind == "rotation" else i / (count - 1) for i in range(count)]
        return Shifts(shift.kind, setting.seed, tuple(shift.strength * place for place in places))
    rng = numpy_generator(setting.seed, Stream.SHIFT)
    cycle, names = rng.permutation(classes)[: shift.classes], np.arange(classes)
    names[cycle] = np.roll(cycle, -1)
    changed = np.zeros(count)
    changed[rng.permutation(count)[: _changed(shift, count)]] = 1
    return Shifts(shift.kind, setting.seed, tuple(changed.tolist()), tuple(names.tolist()))


def require_shift(shift: Shift, dataset: str, layout: Layout, classes: int, clients: int) -> None:
    """Refuse a shift that the data or the number of clients does not allow."""
    if not shift:
        return
    if shift.kind != "labels" and not isinstance(layout, Images):
        raise InputError(f"partition.shift={shift}: {dataset} has {layout}, not images; allowed: none, labels")
    if shift.kind == "labels" and classes < 2:
        raise InputError(f"partition.shift={shift}: {dataset} has {classes} class; allowed: with 2 classes or more")
    if shift.classes is not None and shift.classes > classes:
        raise InputError(f"partition.shift={shift}: {dataset} has {classes} classes; allowed: 2 to {classes} of them")
    _require_clients(shift, clients)


def _require_clients(shift: Shift, clients: int) -> None:
    if shift.kind != "labels" and clients < 2:
        raise InputError(f"partition.clients={clients} with partition.shift={shift}; allowed: at least 2")
    if shift.kind == "labels" and not _changed(shift, clients):
        raise InputError(
            f"partition.shift={shift} changes none of partition.clients={clients}; allowed: a strength of at least "
            f"{0.5 / clients:g}"
        )


def _changed(shift: Shift, clients: int) -> int:
    """Number of clients with exchanged labels: the nearest whole number, and the larger one of two equally near."""
    return int(shift.strength * clients + 0.5)
