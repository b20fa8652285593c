"""Memory for intermediate results."""

import math

from torch import Tensor


class Scratch:
    """Memory that is used again and again, as new pages cost as much as filling them.

    Args:
        like: a tensor of the type and device of what it holds.
    """

    def __init__(self, like: Tensor) -> None:
        self._memory = like.new_empty(0)

    def take(self, *shape: int) -> Tensor:
        """A tensor of any content, whose memory is that of the tensor taken before."""
        size = math.prod(shape)
        if self._memory.numel() < size:
            self._memory = self._memory.new_empty(size)
        return self._memory[:size].view(shape)

    def release(self) -> None:
        """Give the memory back."""
        self._memory = self._memory.new_empty(0)
