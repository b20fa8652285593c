"""The sums of layers that see several places of an example: their gradient for an example is a sum over its places.

Such a sum is to be squared after it is taken, so that no product of sums gives the diagonal: the gradients of some
examples at a time are formed. None of these layers has two Kronecker factors.
"""

from abc import abstractmethod
from collections.abc import Set

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.fisher.blocks import Approximation, Block


class PlaceBlock(Block):
    """The running sums of such a layer.

    Args:
        rows: rows of the layer's matrix.
        columns: columns of the layer's matrix, with that of a bias.
        places: of one example.
        approximations: what to sum; no Kronecker factors.
        workspace: most bytes of gradients at a time, unless one example takes more.
        like: a tensor of the type and device to compute in.
    """

    def __init__(
        self,
        rows: int,
        columns: int,
        places: int,
        approximations: Set[Approximation],
        *,
        workspace: int,
        like: Tensor,
    ) -> None:
        assert Approximation.KFAC not in approximations
        super().__init__(rows, columns, places, approximations, like=like)
        self._columns, self._workspace = columns, workspace
        self._inputs = like.new_empty(0)

    def workspace_in_bytes(self, directions: int) -> int:
        """See `Block.workspace_in_bytes`."""
        return self._step() * self._bytes_per_example()

    def begin(self, inputs: Tensor, directions: int) -> None:
        """See `Block.begin`."""
        self._inputs = inputs

    def add_direction(self, index: int, gradients: Tensor) -> None:
        """See `Block.add_direction`."""
        if not self._sums():
            return
        step = self._step()
        for inputs, part in zip(self._inputs.split(step), gradients.split(step), strict=True):
            self._add(self._matrices(inputs, part))

    def finish(self) -> None:
        """See `Block.finish`."""
        self._inputs = self._like.new_empty(0)

    def per_example(self, gradients: Tensor) -> Tensor:
        """See `Block.per_example`."""
        return self._matrices(self._inputs, gradients)

    @abstractmethod
    def _matrices(self, inputs: Tensor, gradients: Tensor) -> Tensor:
        """The gradient of the layer's matrix, for each of some examples, in new memory."""

    def _sums(self) -> bool:
        """Whether there is anything to add gradients to."""
        return self._squares is not None

    def _add(self, matrices: Tensor) -> None:
        """Add the gradients of some examples, which may be overwritten."""
        if self._squares is not None:
            self._squares.partial += matrices.square_().sum(0)

    def _step(self) -> int:
        """Examples whose gradients are formed at a time."""
        return max(1, self._workspace // self._bytes_per_example())

    def _bytes_per_example(self) -> int:
        """Gradients with and without those of the bias, and the inputs in the form that they are multiplied in."""
        numbers = 2 * self._rows * self._columns + self._windows * (self._rows + self._columns)
        return numbers * self._like.element_size()

    def _input_moment(self, scale: float) -> Tensor:
        raise AssertionError("a layer that sees several places has no second moment of its inputs")


class LinearPlacesBlock(PlaceBlock):
    """The running sums of a linear layer on sequences: for an example, sum over places of g x^T."""

    def __init__(
        self,
        layer: nn.Linear,
        input_shape: torch.Size,
        approximations: Set[Approximation],
        *,
        workspace: int,
        like: Tensor,
    ) -> None:
        self._bias = layer.bias is not None
        columns = layer.in_features + self._bias
        super().__init__(layer.out_features, columns, input_shape[1], approximations, workspace=workspace, like=like)

    def _matrices(self, inputs: Tensor, gradients: Tensor) -> Tensor:
        products = gradients.mT @ inputs
        return torch.cat([products, gradients.sum(1)[:, :, None]], dim=2) if self._bias else products


class EmbeddingBlock(PlaceBlock):
    """The running sums of an embedding: for an example, the row of a token is the sum of g over the token's places."""

    def __init__(
        self,
        layer: nn.Embedding,
        input_shape: torch.Size,
        approximations: Set[Approximation],
        *,
        workspace: int,
        like: Tensor,
    ) -> None:
        super().__init__(
            layer.num_embeddings,
            layer.embedding_dim,
            input_shape[1],
            approximations,
            workspace=workspace,
            like=like,
        )

    def _matrices(self, inputs: Tensor, gradients: Tensor) -> Tensor:
        # A product adds in the same order on every device, which scattering does not.
        return functional.one_hot(inputs, self._rows).to(gradients.dtype).mT @ gradients
