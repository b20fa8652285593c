"""The running sums of layers that are applied at several positions of an example: linear layers and embeddings."""

from abc import abstractmethod
from collections.abc import Set

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.fisher.blocks import Approximation, Block, RunningSum, add_gram, mirror
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.fisher.weight_sharing import WeightSharing, counted_positions, input_rows, output_rows


class PositionBlock(Block):
    """The running sums of a layer that is applied at several positions of an example, such as those of a sequence.

    Args:
        columns: columns of the layer's matrix, including that of a bias.
        places: number of positions in one example.
        approximations: what to sum.
        workspace: most bytes of gradients at a time, unless one example takes more.
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
        super().__init__(rows, columns, places, approximations, like=like)
        self._columns, self._workspace = columns, workspace
        self._inputs = like.new_empty(0)

    def workspace_in_bytes(self, directions: int) -> int:
        """See `Block.workspace_in_bytes`."""
        return self._step() * self._bytes_per_example()

    def begin(self, inputs: Tensor, directions: int, *, counted: Tensor | None = None) -> None:
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
        """The gradient of the layer's matrix for each of some examples, in new memory."""

    def _sums(self) -> bool:
        return self._squares is not None

    def _add(self, matrices: Tensor) -> None:
        """Add the gradients of some examples; their memory may be overwritten."""
        if self._squares is not None:
            self._squares.partial += matrices.square_().sum(0)

    def _step(self) -> int:
        return max(1, self._workspace // self._bytes_per_example())

    def _bytes_per_example(self) -> int:
        """Gradients with and without those of the bias, and the inputs in the form in which they are multiplied."""
        numbers = 2 * self._rows * self._columns + self._windows * (self._rows + self._columns)
        return numbers * self._like.element_size()

    def _input_moment(self, scale: float) -> Tensor:
        raise AssertionError("subclasses have blocks of their own")


class SharedBlock(PositionBlock):
    """A layer whose K-FAC counts positions: A is a mean over rows of inputs, and G one over examples."""

    def __init__(
        self,
        rows: int,
        columns: int,
        places: int,
        approximations: Set[Approximation],
        *,
        sharing: WeightSharing,
        moment: tuple[int, ...],
        gradient_size: int,
        workspace: int,
        like: Tensor,
    ) -> None:
        super().__init__(rows, columns, places, approximations - {Approximation.KFAC}, workspace=workspace, like=like)
        factored = Approximation.KFAC in approximations
        self._sharing = sharing
        self._moment = RunningSum(moment, like=like) if factored else None
        self._gradients = RunningSum((gradient_size, gradient_size), like=like) if factored else None
        self._counted: Tensor | None = None
        self._averaged = 0

    @property
    def size_in_bytes(self) -> int:
        """Memory of the sums."""
        return super().size_in_bytes + sum(one.size_in_bytes for one in (self._moment, self._gradients) if one)

    def begin(self, inputs: Tensor, directions: int, *, counted: Tensor | None = None) -> None:
        """See `Block.begin`."""
        super().begin(inputs, directions)
        self._counted = counted
        if self._moment is not None:
            self._averaged += self._add_inputs(self._moment.partial, inputs)

    @abstractmethod
    def _add_inputs(self, moment: Tensor, inputs: Tensor) -> int:
        """Add the inputs to the sum of x x^T, in place, and give the number of rows."""

    def add_direction(self, index: int, gradients: Tensor) -> None:
        """See `Block.add_direction`."""
        if self._gradients is not None:
            add_gram(self._gradients.partial, output_rows(gradients, self._counted, self._sharing))
        super().add_direction(index, gradients)

    def flush(self) -> None:
        """See `Block.flush`."""
        super().flush()
        for running in (self._moment, self._gradients):
            if running is not None:
                running.flush()

    def kronecker(self, layer: str, examples: int, nominal_directions: int) -> dict[str, Kronecker]:
        """The factors of `weight_sharing`, A times sqrt(C') and G by it; it takes the sums."""
        assert self._moment is not None
        assert self._gradients is not None
        scale = nominal_directions**0.5
        inputs = self._moment.take().mul_(scale / max(self._averaged, 1)).to(self._like)
        outputs = self._gradients.take().div_(scale * examples).to(self._like)
        return {layer: Kronecker(inputs=mirror(inputs) if inputs.ndim == 2 else inputs, outputs=mirror(outputs))}


class LinearPositionsBlock(SharedBlock):
    """The running sums of a linear layer on sequences: an example's gradient is the sum over positions of g x^T."""

    def __init__(
        self,
        layer: nn.Linear,
        input_shape: torch.Size,
        approximations: Set[Approximation],
        *,
        sharing: WeightSharing,
        workspace: int,
        like: Tensor,
    ) -> None:
        self._bias = layer.bias is not None
        columns = layer.in_features + self._bias
        super().__init__(
            layer.out_features,
            columns,
            input_shape[1:-1].numel(),
            approximations,
            sharing=sharing,
            moment=(columns, columns),
            gradient_size=layer.out_features,
            workspace=workspace,
            like=like,
        )

    def begin(self, inputs: Tensor, directions: int, *, counted: Tensor | None = None) -> None:
        """See `Block.begin`."""
        super().begin(inputs.flatten(1, -2), directions, counted=counted)

    def add_direction(self, index: int, gradients: Tensor) -> None:
        """See `Block.add_direction`."""
        super().add_direction(index, gradients.flatten(1, -2))

    def per_example(self, gradients: Tensor) -> Tensor:
        """See `Block.per_example`."""
        return super().per_example(gradients.flatten(1, -2))

    def _add_inputs(self, moment: Tensor, inputs: Tensor) -> int:
        rows, count = input_rows(inputs, self._counted, self._sharing, bias=self._bias)
        add_gram(moment, rows)
        return count

    def _matrices(self, inputs: Tensor, gradients: Tensor) -> Tensor:
        products = gradients.mT @ inputs
        return torch.cat([products, gradients.sum(1)[:, :, None]], dim=2) if self._bias else products


class EmbeddingBlock(SharedBlock):
    """The running sums of an embedding: in an example's gradient, a token's row is the sum of g over its positions.

    Its inputs are unit vectors of tokens. So A is diagonal: the shares of the tokens among all positions, kept as a
    vector. With *reduce* it would be no longer, so that an embedding always has *expand*.
    """

    def __init__(
        self,
        layer: nn.Embedding,
        input_shape: torch.Size,
        approximations: Set[Approximation],
        *,
        workspace: int,
        like: Tensor,
    ) -> None:
        self._padding = layer.padding_idx
        super().__init__(
            layer.num_embeddings,
            layer.embedding_dim,
            input_shape[1],
            approximations,
            sharing=WeightSharing.EXPAND,
            moment=(layer.num_embeddings,),
            gradient_size=layer.embedding_dim,
            workspace=workspace,
            like=like,
        )

    def _add_inputs(self, moment: Tensor, inputs: Tensor) -> int:
        tokens = inputs.flatten() if self._counted is None else inputs[self._counted]
        moment += torch.bincount(tokens, minlength=len(moment))
        return counted_positions(inputs.shape, self._counted)

    def _matrices(self, inputs: Tensor, gradients: Tensor) -> Tensor:
        # A product adds in the same order on every device; scattering does not.
        matrices = functional.one_hot(inputs, self._rows).to(gradients.dtype).mT @ gradients
        if self._padding is not None:
            # Torch never changes this row.
            matrices[:, self._padding] = 0
        return matrices
