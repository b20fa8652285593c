"""How clients fill and scale numbers, each by its own training examples alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfisher_core.data.specs import Impute


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
