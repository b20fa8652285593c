"""Whether tensors hold numbers only."""

import torch
from torch import Tensor


def is_finite(tensor: Tensor) -> bool:
    """Say whether all entries are finite numbers.

    The extremes tell, in one reading and without the copies that `torch.isfinite` makes: both are NaN as soon as any
    entry is.

    Args:
        tensor: real numbers of any shape, on any device; one without entries is finite.
    """
    return tensor.numel() == 0 or bool(torch.isfinite(torch.stack(tensor.detach().aminmax())).all())
