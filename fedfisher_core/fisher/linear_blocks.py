"""The running sums of linear layers that see one row an example, and of parameters that no layer holds."""

from collections.abc import Set

import torch
from torch import Tensor, nn

from fedfisher_core.fisher.blocks import Approximation, Block, RunningSum, add_gram, mirror
from fedfisher_core.fisher.kronecker import Kronecker


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

    def begin(self, inputs: Tensor, directions: int, *, counted: Tensor | None = None) -> None:
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


class OwnBlock(Block):
    """The running sums of a parameter that no layer holds: a row, of whose Fisher the diagonal is kept.

    It is the layer of an input that is always 1, and its inputs and gradients are those of each example's copy.
    """

    def __init__(self, parameter: nn.Parameter, approximations: Set[Approximation], *, like: Tensor) -> None:
        needed = {Approximation.DIAGONAL} if approximations - {Approximation.DENSE} else set()
        super().__init__(1, parameter.numel(), 1, needed, like=like)

    def begin(self, inputs: Tensor, directions: int, *, counted: Tensor | None = None) -> None:
        """See `Block.begin`."""

    def add_direction(self, index: int, gradients: Tensor) -> None:
        """See `Block.add_direction`."""
        if self._squares is not None:
            self._squares.partial += gradients.reshape(len(gradients), -1).square().sum(0)

    def finish(self) -> None:
        """See `Block.finish`."""

    def per_example(self, gradients: Tensor) -> Tensor:
        """See `Block.per_example`."""
        return gradients.reshape(len(gradients), 1, -1)

    def diagonal(self, examples: int) -> Tensor:
        """See `Block.diagonal`; the sums stay, as the factors are made of them too."""
        assert self._squares is not None
        return self._squares.value().div_(examples).to(self._like)

    def kronecker(self, layer: str, examples: int, nominal_directions: int) -> dict[str, Kronecker]:
        """The diagonal as the factor A, a vector, with the scale of `Block.kronecker`."""
        scale = nominal_directions**0.5
        inputs = self.diagonal(examples)[0].mul_(scale)
        return {layer: Kronecker(inputs=inputs, outputs=self._like.new_full((1, 1), 1 / scale))}

    def _input_moment(self, scale: float) -> Tensor:
        raise AssertionError("the factors are made of the diagonal")
