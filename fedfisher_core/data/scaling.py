"""How clients fill and scale numbers: each by what it observed in its own training examples, and by nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfisher_core.data.specs import Impute


@dataclass(frozen=True)
class Scaling:
    """What all clients of a federation know of their own numbers.

    Args:
        fill: takes the place of a missing number, float64, shape (clients, features).
        mean: of the numbers that a client observed, likewise; 0 where it observed none.
        std: their standard deviation (of the population), likewise; 0 where they are all alike, or there is none.
    """

    fill: Tensor
    mean: Tensor
    std: Tensor

    def apply(self, numbers: Tensor, clients: Tensor) -> Tensor:
        """Fill and scale rows, each by its own client's statistics.

        A feature without a scale, which a client never observed or observed to be one and the same number, becomes 0:
        nothing says how far another number is from it.

        Args:
            numbers: NaN where one is missing, shape (rows, features).
            clients: number of the client of each row, int64, shape (rows,).

        Returns:
            (x - mean) / std of what is there or was filled, float32, shape (rows, features).
        """
        fill, mean, std = (values[clients] for values in (self.fill, self.mean, self.std))
        filled = torch.where(numbers.isnan(), fill, numbers.double())
        known = std > 0
        return torch.where(known, (filled - mean) / torch.where(known, std, 1), 0).float()


def observe(parts: Sequence[Tensor], impute: Impute) -> Scaling:
    """Compute what each client knows of its own numbers.

    Args:
        parts: the training examples of each client, NaN where a number is missing, shape (examples, features).
        impute: what of the numbers that it observed fills those that are missing; of an even number of them, the
            median is the mean of the two in the middle.

    Returns:
        The statistics of all clients.
    """
    rows = [part.double() for part in parts]
    mean = torch.stack([part.nanmean(0).nan_to_num(0) for part in rows])
    # An exact 0 where all numbers are alike, which the rounding of their mean could hide.
    alike = torch.stack([_extent(part) == 0 for part in rows])
    squares = [((part - centre) ** 2).nanmean(0).nan_to_num(0) for part, centre in zip(rows, mean, strict=True)]
    std = torch.where(alike, 0, torch.stack(squares).sqrt())
    if impute == "mean":
        # A copy of its own, as files hold no tensor twice.
        return Scaling(fill=mean.clone(), mean=mean, std=std)
    return Scaling(fill=torch.stack([part.nanquantile(0.5, 0).nan_to_num(0) for part in rows]), mean=mean, std=std)


def _extent(part: Tensor) -> Tensor:
    """How far apart the smallest and the largest number of each feature are; 0 where there is none."""
    missing = part.isnan()
    highest = part.masked_fill(missing, -torch.inf).amax(0)
    lowest = part.masked_fill(missing, torch.inf).amin(0)
    return torch.where(missing.all(0), 0, highest - lowest)
