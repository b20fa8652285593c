"""The second moments of the patches of a grouped convolution."""

import torch
from torch import Tensor

from fedfisher_core.fisher.accumulation import RunningSum
from fedfisher_core.fisher.convolution import Geometry


class GroupMoment:
    """Sum of x x^T over all patches x of each group.

    Args:
        geometry: the windows in a group's channels.
        groups: how many there are.
        like: a tensor of the type and device to compute in.
    """

    def __init__(self, geometry: Geometry, groups: int, *, like: Tensor) -> None:
        self._sum = RunningSum((groups, geometry.patch_size, geometry.patch_size), like=like)

    @property
    def size_in_bytes(self) -> int:
        """Memory of the sums."""
        return self._sum.size_in_bytes

    def add(self, patches: Tensor) -> None:
        """Add patches of shape (patch size, examples groups, windows), an example's groups one after another."""
        products = torch.bmm(patches.transpose(0, 1), patches.permute(1, 2, 0))
        self._sum.partial += products.unflatten(0, (-1, len(self._sum.partial))).sum(0)

    def flush(self) -> None:
        """Move the partial sum into the double-precision total."""
        self._sum.flush()

    def value(self) -> Tensor:
        """The sums in double precision, a new tensor of shape (groups, patch size, patch size)."""
        return self._sum.value()
