"""What one example adds to a layer's sums: to its part of the diagonal, and to its Kronecker factors A and G."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedfisher_core.fisher.convolution import Geometry
from fedfisher_core.fisher.layers import Layer
from fedfisher_core.privacy.contributions import Contributions, Matrices, Outer, second_moments


@dataclass(frozen=True)
class LayerShape:
    """The sizes of a layer's Fisher block.

    Args:
        rows: of the layer's matrix, its outputs.
        columns: of the layer's matrix, its inputs with that of a bias.
        windows: places of one example that the layer looks at; 1 for a linear layer.
        geometry: where they lie; None for a linear layer.
        bias: whether the inputs end in a one.
    """

    rows: int
    columns: int
    windows: int
    geometry: Geometry | None
    bias: bool

    @staticmethod
    def of(layer: Layer, input_shape: torch.Size, output_shape: torch.Size) -> "LayerShape":
        """Read the sizes off a layer.

        Args:
            layer: a linear layer or an ungrouped convolution.
            input_shape: shape of its inputs, examples first.
            output_shape: shape of its outputs, examples first.

        Returns:
            The sizes.
        """
        bias = layer.bias is not None
        if isinstance(layer, nn.Linear):
            return LayerShape(layer.out_features, layer.in_features + bias, 1, None, bias)
        geometry = Geometry.of(layer, input_shape, output_shape)
        return LayerShape(layer.out_channels, geometry.patch_size, geometry.windows, geometry, bias)

    def numbers(self, directions: int) -> int:
        """Most numbers that one example's contributions hold, with what they are made of."""
        vectors = directions * self.windows
        made = self.windows * self.columns + 2 * vectors * self.rows
        if self.geometry is None:
            return made + 2 * self.columns + min(vectors, self.rows) ** 2
        squares = (directions + 1) * self.rows * self.columns
        return 2 * made + squares + min(self.windows, self.columns) ** 2 + min(vectors, self.rows) ** 2


class LayerExamples:
    """A chunk of examples as one layer sees them.

    Args:
        shape: the layer's sizes.
        inputs: the layer's inputs, examples first.
        gradients: at the layer's outputs, one tensor a direction, shaped like the outputs.
    """

    def __init__(self, shape: LayerShape, inputs: Tensor, gradients: list[Tensor]) -> None:
        self._shape = shape
        if shape.geometry is None:
            columns = torch.cat([inputs, inputs.new_ones(len(inputs), 1)], dim=1) if shape.bias else inputs
            self._inputs = columns[:, None]
        else:
            self._inputs = shape.geometry.patches(shape.geometry.pad(inputs)).permute(1, 2, 0)
        # Shape (examples, directions, rows, windows).
        self._gradients = torch.stack(gradients, dim=1).unflatten(2, (shape.rows, -1)).flatten(3)

    def squares(self) -> Contributions:
        """Squared gradients of the layer's matrix, summed over the directions."""
        if self._shape.geometry is None:
            return Outer(self._gradients[..., 0].square().sum(1), self._inputs[:, 0].square())
        derivatives = self._gradients.flatten(1, 2) @ self._inputs
        return Matrices(derivatives.square_().unflatten(1, (-1, self._shape.rows)).sum(1))

    def input_moments(self) -> Contributions:
        """Sum of x x^T over windows."""
        return second_moments(self._inputs)

    def output_moments(self) -> Contributions:
        """Sum of g g^T over directions and windows."""
        return second_moments(self._gradients.transpose(2, 3).flatten(1, 2))
