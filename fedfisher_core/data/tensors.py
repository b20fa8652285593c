"""Examples in memory: one split of a data set, normalisation and augmentation on whole batches."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedfisher_core.data.layouts import Images, Tokens, Vectors
from fedfisher_core.data.shifts import View
from fedfisher_core.data.specs import DatasetSpec


@dataclass(frozen=True)
class Split:
    """The decoded training or test examples of a data set.

    Args:
        inputs: of the layout's shape and stored type, examples first.
        labels: int64, shape (examples,).
        groups: int64, shape (examples,): the maker of each example, as an index into the data set's `group_names`; None
            if no column was asked for, or the split lacks it.
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
        class_names: one a label.
        group_names: of the makers of examples; empty if no column was asked for.
        coarse: the coarse label of each label; empty if there are none.
        notes: sentences for reports, on what is not obvious about the data.
    """

    spec: DatasetSpec
    train: Split
    test: Split
    class_names: tuple[str, ...]
    group_names: tuple[str, ...] = ()
    coarse: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Examples:
    """Normalised examples, as a network takes them.

    Args:
        inputs: float32 (tokens: int64), of the layout's shape, examples first.
        labels: int64, shape (examples,); for a regression the targets, float32.
    """

    inputs: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> "Examples":
        """Copy to a device."""
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
        indices: int64, shape (selected,); None for all.
        view: how a client sees images and labels; None for no change.
        scale: how clients scale the numbers of the selected examples, missing ones included; None for the constants of
            the data set.

    Returns:
        The labels with (x - mean) / std, where x is a number, or pixel / 255 as the client sees it; tokens are
        unchanged.

    Raises:
        ValueError: clients scale the numbers of this data set, and no scale was given.
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
            inputs = _standardised(inputs, spec) if scale is None else scale(inputs)
        case Tokens():
            pass
    return Examples(inputs=inputs, labels=labels if view is None else view.labels(labels))


def normalise(pixels: Tensor, spec: DatasetSpec) -> Tensor:
    """Normalise images in [0, 1] as `select` does, in new memory: (pixels - mean) / std."""
    mean, std = _constants(spec, pixels.device)
    return (pixels - mean) / std


def augment(inputs: Tensor, generator: torch.Generator, *, padding: int = 4) -> Tensor:
    """Crop each image at random after zero padding, and mirror half of them.

    Args:
        inputs: normalised images, shape (batch, channels, height, width).
        generator: on the CPU.
        padding: pixels on each side.
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


def _standardised(numbers: Tensor, spec: DatasetSpec) -> Tensor:
    """Scale numbers in double precision, in which large ones such as Unix times stay distinct; the result is single."""
    if not spec.mean and not spec.std:
        return numbers.to(torch.float32, copy=True)
    mean, std = _constants(spec, numbers.device, torch.float64)
    return ((numbers - mean) / std).float()


def _constants(spec: DatasetSpec, device: torch.device, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation, in a shape that broadcasts over an example's channels or features."""
    places = [1] * (len(spec.inputs.shape) - 1)
    values = (spec.mean or (0.0,), spec.std or (1.0,))
    mean, std = (torch.tensor(one, device=device, dtype=dtype).reshape(1, -1, *places) for one in values)
    return mean, std
