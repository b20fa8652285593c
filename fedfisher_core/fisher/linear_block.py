"""The sums of a linear layer for its block of the Fisher."""

from collections.abc import Set

import torch
from torch import Tensor, nn

from fedfisher_core.fisher.accumulation import RunningSum, add_gram, mirror
from fedfisher_core.fisher.blocks import Approximation, Block


class LinearBlock(Block):
    """The running sums of a linear layer."""

    def __init__(self, layer: nn.Linear, approximations: Set[Approximation], *, like: Tensor) -> None:
        self._bias = layer.bias is not None
        columns = layer.in_features + self._bias
        super().__init__(layer.out_features, columns, 1, approximations, like=like)
        self._inputs = RunningSum((columns, columns), like=like) if self._outputs else None
        self._chunk = self._lengths = like.new_empty(0, 0)

    @property
    def size_in_bytes(self) -> int:
        """Memory of the sums."""
        return super().size_in_bytes + (self._inputs.size_in_bytes if self._inputs else 0)

    def begin(self, inputs: Tensor, directions: int) -> None:
        """See `Block.begin`."""
        self._chunk = torch.cat([inputs, inputs.new_ones(len(inputs), 1)], dim=1) if self._bias else inputs
        self._lengths = inputs.new_zeros(len(inputs), self._rows) if self._squares else self._lengths

    def add_direction(self, index: int, gradients: Tensor) -> None:
        """See `Block.add_direction`."""
        if self._outputs is not None:
            add_gram(self._outputs.partial[0], gradients)
        if self._squares is not None:
            self._lengths.addcmul_(gradients, gradients)

    def finish(self) -> None:
        """See `Block.finish`."""
        if self._inputs is not None:
            add_gram(self._inputs.partial, self._chunk)
        if self._squares is not None:
            self._squares.partial.addmm_(self._lengths.T, self._chunk.square())
        self._chunk = self._lengths = self._like.new_empty(0, 0)

    def per_example(self, gradients: Tensor) -> Tensor:
        """See `Block.per_example`."""
        return gradients[:, :, None] * self._chunk[:, None, :]

    def flush(self) -> None:
        """See `Block.flush`."""
        super().flush()
        if self._inputs is not None:
            self._inputs.flush()

    def _input_moment(self, scale: float) -> Tensor:
        assert self._inputs is not None
        return mirror(self._inputs.take().mul_(scale).to(self._like))[None]
