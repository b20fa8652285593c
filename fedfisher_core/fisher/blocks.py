"""What each layer sums over the examples for its block of the Fisher.

A layer's gradients are vectors at its outputs, one a direction and example. Together with its inputs they give its
block in every approximation. Sums over directions are taken before the large products wherever the algebra allows.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Set
from enum import StrEnum

import torch
from torch import Tensor, nn

from fedfisher_core.fisher.accumulation import RunningSum, add_gram, mirror
from fedfisher_core.fisher.convolution import Geometry, PatchMoment, RowMoment, patch_moment
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.fisher.layers import Layer

WORKSPACE = 8 * 2**20
"""Bytes of patches and per-example gradients that a convolution holds at a time, about what a cache holds."""


class Approximation(StrEnum):
    """What a Fisher is stored as."""

    DIAGONAL = "diagonal"
    """One number a parameter."""

    KFAC = "kfac"
    """One Kronecker product a layer (Martens and Grosse 2015; Grosse and Martens 2016 for convolutions)."""

    DENSE = "dense"
    """The whole matrix."""


class Block(ABC):
    """The running sums of one layer. A chunk of examples is begun, given each direction, and finished.

    Args:
        rows: rows of the layer's matrix.
        columns: columns of the layer's matrix, with that of a bias.
        windows: places of one example that the layer looks at.
        approximations: what to sum.
        like: a tensor of the type and device to compute in.
    """

    def __init__(
        self, rows: int, columns: int, windows: int, approximations: Set[Approximation], *, like: Tensor
    ) -> None:
        self._rows = rows
        self._windows = windows
        self._like = like
        self._squares = RunningSum((rows, columns), like=like) if Approximation.DIAGONAL in approximations else None
        self._outputs = RunningSum((rows, rows), like=like) if Approximation.KFAC in approximations else None
        self._memory = like.new_empty(0)

    @property
    def size_in_bytes(self) -> int:
        """Memory of the sums."""
        return sum(s.size_in_bytes for s in (self._squares, self._outputs) if s is not None)

    def workspace_in_bytes(self, directions: int) -> int:
        """Memory that `finish` needs beside the sums and the chunk.

        Args:
            directions: how many a chunk has.
        """
        return 0

    @abstractmethod
    def begin(self, inputs: Tensor, directions: int) -> None:
        """Begin a chunk.

        Args:
            inputs: the layer's inputs, examples first.
            directions: how many will be added.
        """

    @abstractmethod
    def add_direction(self, index: int, gradients: Tensor) -> None:
        """Add the chunk's gradients at the layer's outputs for one direction.

        Args:
            index: which direction.
            gradients: shaped like the layer's outputs.
        """

    @abstractmethod
    def finish(self) -> None:
        """Add what needs all the chunk's directions, and let go of the chunk."""

    @abstractmethod
    def per_example(self, gradients: Tensor) -> Tensor:
        """The gradient of the layer's matrix, for each of the chunk's examples.

        Args:
            gradients: shaped like the layer's outputs, for one direction.

        Returns:
            Matrices of shape (examples, rows, columns).
        """

    @abstractmethod
    def _input_moment(self, scale: float) -> Tensor:
        """The scaled sum of x x^T over examples and windows, a new tensor."""

    def _hold(self, *shape: int) -> Tensor:
        """Memory for a chunk's gradients. It is kept, as new pages cost as much as filling them."""
        size = math.prod(shape)
        if self._memory.numel() < size:
            self._memory = self._like.new_empty(size)
        return self._memory[:size].view(shape)

    def flush(self) -> None:
        """Move the partial sums into the double-precision totals."""
        for running in (self._squares, self._outputs):
            if running is not None:
                running.flush()

    def diagonal(self, examples: int) -> Tensor:
        """The diagonal, in the shape of the layer's matrix."""
        assert self._squares is not None
        return self._squares.value().div_(examples).to(self._like)

    def kronecker(self, examples: int, nominal_directions: int) -> Kronecker:
        """The K-FAC block.

        Args:
            examples: how many were added.
            nominal_directions: C', which the factors' scales (and not their product) depend on.

        Returns:
            A = sqrt(C') / N sum x x^T and G = 1 / (sqrt(C') N S) sum g g^T, with S windows an example.
        """
        assert self._outputs is not None
        scale = nominal_directions**0.5
        outputs = self._outputs.value().div_(scale * examples * self._windows)
        return Kronecker(inputs=self._input_moment(scale / examples), outputs=mirror(outputs.to(self._like)))


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
            add_gram(self._outputs.partial, gradients)
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
        return mirror(self._inputs.value().mul_(scale).to(self._like))


class Conv2dBlock(Block):
    """The running sums of a convolution.

    Args:
        layer: an ungrouped convolution.
        input_shape: shape of its inputs, examples first.
        output_shape: shape of its outputs, examples first.
        approximations: what to sum.
        like: a tensor of the type and device to compute in.
    """

    def __init__(
        self,
        layer: nn.Conv2d,
        input_shape: torch.Size,
        output_shape: torch.Size,
        approximations: Set[Approximation],
        *,
        like: Tensor,
    ) -> None:
        geometry = Geometry.of(layer, input_shape, output_shape)
        super().__init__(layer.out_channels, geometry.patch_size, geometry.windows, approximations, like=like)
        self._geometry = geometry
        self._moment = patch_moment(geometry, like=like) if self._outputs else None
        self._padded = self._maps = like.new_empty(0)

    @property
    def size_in_bytes(self) -> int:
        """Memory of the sums."""
        return super().size_in_bytes + (self._moment.size_in_bytes if self._moment else 0)

    def begin(self, inputs: Tensor, directions: int) -> None:
        """See `Block.begin`."""
        self._padded = self._geometry.pad(inputs)
        # A map's directions lie together, so that one product with an example's patches gives all their gradients,
        # and one product of its maps the sum over all their directions.
        self._maps = self._hold(len(inputs), self._rows, directions, self._windows)

    def add_direction(self, index: int, gradients: Tensor) -> None:
        """See `Block.add_direction`."""
        self._maps[:, :, index] = gradients.flatten(2)

    def finish(self) -> None:
        """See `Block.finish`."""
        if isinstance(self._moment, RowMoment):
            self._moment.add(self._padded)
        directions = self._maps.shape[2]
        step = min(self._step(directions), len(self._maps))
        each = squares = self._like.new_empty(0)
        if self._squares is not None:
            # Both are made once a chunk, as new pages cost as much as filling them.
            each = self._like.new_empty(step, self._geometry.patch_size, self._rows * directions)
            squares = torch.zeros_like(each)
        for padded, maps in zip(self._padded.split(step), self._maps.split(step), strict=True):
            if self._outputs is not None:
                flat = maps.flatten(2)
                self._outputs.partial += torch.bmm(flat, flat.transpose(1, 2)).sum(0)
            if self._squares is None and not isinstance(self._moment, PatchMoment):
                continue
            patches = self._geometry.patches(padded)
            if isinstance(self._moment, PatchMoment):
                self._moment.add(patches)
            if self._squares is not None:
                gradients = each[: len(maps)]
                torch.bmm(patches.transpose(0, 1), maps.flatten(1, 2).transpose(1, 2), out=gradients)
                squares[: len(maps)].addcmul_(gradients, gradients)
        if self._squares is not None:
            self._squares.partial += squares.sum(0).unflatten(1, (self._rows, directions)).sum(2).T
        self._padded = self._maps = self._like.new_empty(0)

    def per_example(self, gradients: Tensor) -> Tensor:
        """See `Block.per_example`."""
        return gradients.flatten(2) @ self._geometry.patches(self._padded).permute(1, 2, 0)

    def flush(self) -> None:
        """See `Block.flush`."""
        super().flush()
        if self._moment is not None:
            self._moment.flush()

    def workspace_in_bytes(self, directions: int) -> int:
        """See `Block.workspace_in_bytes`."""
        return self._step(directions) * self._bytes_per_example(directions)

    def _step(self, directions: int) -> int:
        """Examples whose gradients are formed at a time."""
        step, threads = max(1, WORKSPACE // self._bytes_per_example(directions)), torch.get_num_threads()
        # Threads share the examples of a product; an odd one out would leave the others waiting.
        return step - step % threads if step > threads else step

    def _bytes_per_example(self, directions: int) -> int:
        """Patches, per-example gradients and their squares, and a product of maps."""
        columns, rows = self._geometry.patch_size, self._rows
        numbers = columns * self._windows + 2 * directions * rows * columns + rows**2
        return numbers * self._like.element_size()

    def _input_moment(self, scale: float) -> Tensor:
        assert self._moment is not None
        return self._moment.value().mul_(scale).to(self._like)


def block_of(
    layer: Layer,
    input_shape: torch.Size,
    output_shape: torch.Size,
    approximations: Set[Approximation],
    *,
    like: Tensor,
) -> Block:
    """Make the empty sums of a layer; see `Conv2dBlock` for the arguments."""
    if isinstance(layer, nn.Linear):
        return LinearBlock(layer, approximations, like=like)
    return Conv2dBlock(layer, input_shape, output_shape, approximations, like=like)
