"""Examples in memory: one split of a data set, normalisation and augmentation on whole batches."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedfisher_core.data.shifts import View
from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.layouts import Images, Tokens, Vectors


@dataclass(frozen=True)
class Split:
    """The training or the test examples of a data set as they were decoded.

    Args:
        inputs: of the layout's shape and stored type, examples first.
        labels: int64, shape (examples,).
        groups: int64, shape (examples,): who made each example, by the place among the data set's `group_names`; None
            where no column was asked for, or the split lacks it.
    """

    inputs: Tensor
    labels: Tensor
    groups: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Dataset:
    """A decoded data set.

    Args:
        spec: what it is.
        train: its training examples.
        test: its test examples.
        class_names: one a label.
        group_names: of those who made the examples; empty where no column was asked for.
        coarse: the coarse label that stands for each label; empty where there are none.
    """

    spec: DatasetSpec
    train: Split
    test: Split
    class_names: tuple[str, ...]
    group_names: tuple[str, ...] = ()
    coarse: tuple[int, ...] = ()


@dataclass(frozen=True)
class Examples:
    """Normalised examples, as a network takes them.

    Args:
        inputs: float32 (tokens: int64), of the layout's shape, examples first.
        labels: int64, shape (examples,); of a regression float32, the targets.
    """

    inputs: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> "Examples":
        """Copy to a device.

        Args:
            device: where to.

        Returns:
            The same examples there.
        """
        return Examples(inputs=self.inputs.to(device), labels=self.labels.to(device))


def select(
    split: Split,
    spec: DatasetSpec,
    indices: Tensor | None = None,
    *,
    view: View | None = None,
    scale: Callable[[Tensor], Tensor] | None = None,
) -> Examples:
    """Normalise some examples of a split.

    Args:
        split: the decoded examples.
        spec: says what they are, and holds the constants of the normalisation.
        indices: int64, shape (selected,); None for all.
        view: how a client sees images and labels; None for as they are.
        scale: what clients make of the numbers of the selected examples, those that are missing included; None for the
            constants of the data set.

    Returns:
        (x - mean) / std, where x is a number, or pixel / 255 as the client sees it; tokens as they are. With the
        labels.

    Raises:
        ValueError: clients scale the numbers of this data set, and nothing says how.
    """
    if spec.impute is not None and scale is None:
        raise ValueError(f"the numbers of {spec.name!r} are scaled by each client; no scale was given")
    inputs = split.inputs if indices is None else split.inputs[indices]
    labels = split.labels if indices is None else split.labels[indices]
    match spec.inputs:
        case Images():
            mean, std = _constants(spec, inputs.device)
            pixels = inputs.float().div_(255)
            inputs = (pixels if view is None else view.images(pixels)).sub_(mean).div_(std)
        case Vectors():
            mean, std = _constants(spec, inputs.device)
            inputs = (inputs - mean) / std if scale is None else scale(inputs)
        case Tokens():
            pass
    return Examples(inputs=inputs, labels=labels if view is None else view.labels(labels))


def normalise(pixels: Tensor, spec: DatasetSpec) -> Tensor:
    """Normalise images as `select` does, and leave the originals as they are.

    Args:
        pixels: in [0, 1], shape (examples, channels, height, width).
        spec: holds the constants of the normalisation.

    Returns:
        (pixels - mean) / std.
    """
    mean, std = _constants(spec, pixels.device)
    return (pixels - mean) / std


def augment(inputs: Tensor, generator: torch.Generator, *, padding: int = 4) -> Tensor:
    """Crop each image at random after zero padding, and mirror half of them.

    Args:
        inputs: normalised images, shape (batch, channels, height, width).
        generator: draws the offsets and the mirroring, on the CPU.
        padding: pixels on each side.

    Returns:
        Images of the same shape.
    """
    batch, _, height, width = inputs.shape
    offsets = torch.randint(0, 2 * padding + 1, (2, batch), generator=generator).to(inputs.device)
    mirrored = (torch.rand(batch, generator=generator) < 0.5).to(inputs.device)
    padded = functional.pad(inputs, (padding,) * 4)
    rows = offsets[0, :, None] + torch.arange(height, device=inputs.device)
    columns = torch.arange(width, device=inputs.device).expand(batch, width)
    columns = offsets[1, :, None] + torch.where(mirrored[:, None], width - 1 - columns, columns)
    example = torch.arange(batch, device=inputs.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[example, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def _constants(spec: DatasetSpec, device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation, in a shape that meets every example's channels or features."""
    places = [1] * (len(spec.inputs.shape) - 1)
    values = (spec.mean or (0.0,), spec.std or (1.0,))
    mean, std = (torch.tensor(one, device=device).reshape(1, -1, *places) for one in values)
    return mean, std
