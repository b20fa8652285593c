"""Examples in memory: one split of a data set, its normalisation, and how clients fill and scale numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedfisher_core.data.layouts import Images, Tokens, Vectors
from fedfisher_core.data.shifts import View
from fedfisher_core.data.specs import DatasetSpec, Impute


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


def denormalise(inputs: Tensor, spec: DatasetSpec) -> Tensor:
    """Bring normalised images back to [0, 1], in new memory: inputs std + mean."""
    mean, std = _constants(spec, inputs.device)
    return inputs * std + mean


def augment(inputs: Tensor, generator: torch.Generator, *, padding: int = 4) -> Tensor:
    """Crop each image at random after zero padding, and mirror half of them.

    FedFisher's reference code draws one crop and one flip for a whole batch.

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


@dataclass(frozen=True)
class Scaling:
    """What all clients of a federation know of their own numbers.

    Args:
        fill: replaces a missing number, float64, shape (clients, features).
        mean: of the numbers that a client observed, likewise; 0 if it observed none.
        std: their standard deviation (of the population), likewise; 0 if they are all equal, or there are none.
    """

    fill: Tensor
    mean: Tensor
    std: Tensor

    def apply(self, numbers: Tensor, clients: Tensor) -> Tensor:
        """Fill and scale rows, each by its own client's statistics: (x - mean) / std, float32, shape (rows, features).

        A feature that a client never observed, or observed only with a single value, becomes 0: it has no scale.

        Args:
            numbers: NaN for a missing one, shape (rows, features).
            clients: client of each row, int64, shape (rows,).
        """
        fill, mean, std = (values[clients] for values in (self.fill, self.mean, self.std))
        filled = torch.where(numbers.isnan(), fill, numbers.double())
        known = std > 0
        return torch.where(known, (filled - mean) / torch.where(known, std, 1), 0).float()


def observe(parts: Sequence[Tensor], impute: Impute) -> Scaling:
    """Compute the statistics of each client's numbers.

    Args:
        parts: the training examples of each client, NaN for a missing number, shape (examples, features).
        impute: the statistic that fills missing numbers; the median of an even number of them is the mean of the middle
            two.
    """
    rows = [part.double() for part in parts]
    mean = torch.stack([part.nanmean(0).nan_to_num(0) for part in rows])
    # Exactly 0 if all numbers are equal, which the rounding of their mean could hide.
    alike = torch.stack([_extent(part) == 0 for part in rows])
    squares = [((part - centre) ** 2).nanmean(0).nan_to_num(0) for part, centre in zip(rows, mean, strict=True)]
    std = torch.where(alike, 0, torch.stack(squares).sqrt())
    if impute == "mean":
        # A copy, because files hold no tensor twice.
        return Scaling(fill=mean.clone(), mean=mean, std=std)
    return Scaling(fill=torch.stack([part.nanquantile(0.5, 0).nan_to_num(0) for part in rows]), mean=mean, std=std)


def _extent(part: Tensor) -> Tensor:
    """Difference of the largest and the smallest number of each feature; 0 if there is none."""
    missing = part.isnan()
    highest = part.masked_fill(missing, -torch.inf).amax(0)
    lowest = part.masked_fill(missing, torch.inf).amin(0)
    return torch.where(missing.all(0), 0, highest - lowest)
