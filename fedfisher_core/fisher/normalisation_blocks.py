"""The running sums of normalisations, where each unit (a feature or channel) has a small matrix.

A unit's gradient is a short vector, so its block of the Fisher is kept whole instead of as K-FAC's two factors: A is
the second moment of the vectors, and G a number.
"""

import math
from abc import abstractmethod
from collections.abc import Set
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.fisher.blocks import Approximation, RunningSum
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.fisher.layers import matrix_names
from fedfisher_core.fisher.position_blocks import PositionBlock
from fedfisher_core.models.batch_norm import BatchNorm

L = TypeVar("L", bound=nn.Module)

_WEIGHT_OR_BIAS = [0, 1, 1, 0]
"""The gradients of weight, bias, mean and log_variance are multiples of that of the weight (0) or the bias (1)."""


class NormalisationBlock(PositionBlock, Generic[L]):
    """The running sums of a normalisation, whose matrix has a row for each unit, with the factor in the first column.

    Args:
        input_shape: examples first.
        workspace: see `PositionBlock`.
    """

    def __init__(
        self,
        layer: L,
        input_shape: torch.Size,
        approximations: Set[Approximation],
        *,
        workspace: int,
        like: Tensor,
    ) -> None:
        self._layer = layer
        units, columns, places = self._sizes(layer, input_shape)
        unfactored = approximations - {Approximation.KFAC}
        super().__init__(units, columns, places, unfactored, workspace=workspace, like=like)
        factored = Approximation.KFAC in approximations
        self._units = RunningSum((units, columns, columns), like=like) if factored else None

    @property
    def size_in_bytes(self) -> int:
        """Memory of the sums."""
        return super().size_in_bytes + (self._units.size_in_bytes if self._units else 0)

    def begin(self, inputs: Tensor, directions: int, *, counted: Tensor | None = None) -> None:
        """See `Block.begin`; the inputs are normalised once for all directions."""
        super().begin(self._by_unit(self._normalised(inputs)), directions)

    def flush(self) -> None:
        """See `Block.flush`."""
        super().flush()
        if self._units is not None:
            self._units.flush()

    def kronecker(self, layer: str, examples: int, nominal_directions: int) -> dict[str, Kronecker]:
        """The whole blocks of the units; it takes the sums.

        Args:
            layer: its qualified name.
            nominal_directions: C', on which the factors' scales depend, and their product does not.

        Returns:
            By the names of the units' matrices, A = sqrt(C') / N sum v v^T and G = 1 / sqrt(C'), where v is the
            gradient of one of N examples.
        """
        assert self._units is not None
        scale = nominal_directions**0.5
        moments = self._moments(self._units.take().mul_(scale / examples)).to(self._like)
        # Files of tensors need separate memory for each tensor.
        ones = self._like.new_full((self._rows, 1, 1), 1 / scale).unbind()
        names = matrix_names(layer, self._rows)
        return {name: Kronecker(inputs=a, outputs=g) for name, a, g in zip(names, moments, ones, strict=True)}

    @staticmethod
    @abstractmethod
    def _sizes(layer: L, input_shape: torch.Size) -> tuple[int, int, int]:
        """Number of features or channels, parameters of each, and positions of each in one example."""

    @abstractmethod
    def _normalised(self, inputs: Tensor) -> Tensor:
        """The inputs after the layer's normalisation, before its scale and shift."""

    def _by_unit(self, tensor: Tensor) -> Tensor:
        """A tensor shaped like the layer's inputs, in the shape (examples, units, positions); units are channels."""
        return tensor.flatten(2) if tensor.ndim > 2 else tensor[:, :, None]

    def _matrices(self, inputs: Tensor, gradients: Tensor) -> Tensor:
        """Sums over positions of g x, with x normalised, and of g if there is a bias."""
        gradients = self._by_unit(gradients)
        return torch.stack([(gradients * inputs).sum(2), gradients.sum(2)][: self._columns], dim=2)

    def _moments(self, own: Tensor) -> Tensor:
        """Second moments of the units' parameters, from those of the result of `_matrices`, shape (units, ..., ...)."""
        return own

    def _sums(self) -> bool:
        return self._units is not None or super()._sums()

    def _add(self, matrices: Tensor) -> None:
        if self._units is not None:
            by_unit = matrices.permute(1, 2, 0)
            self._units.partial += torch.bmm(by_unit, by_unit.mT)
        super()._add(matrices)


class LayerNormBlock(NormalisationBlock[nn.LayerNorm | nn.RMSNorm]):
    """The running sums of a layer or RMS normalisation: over positions, of g x with x normalised, and of g."""

    @staticmethod
    def _sizes(layer: nn.LayerNorm | nn.RMSNorm, input_shape: torch.Size) -> tuple[int, int, int]:
        features = math.prod(layer.normalized_shape)
        columns = 1 + (isinstance(layer, nn.LayerNorm) and layer.bias is not None)
        return features, columns, input_shape[1:].numel() // features

    def _normalised(self, inputs: Tensor) -> Tensor:
        shape = self._layer.normalized_shape
        if isinstance(self._layer, nn.RMSNorm):
            return functional.rms_norm(inputs, list(shape), eps=self._layer.eps)
        return functional.layer_norm(inputs, shape, eps=self._layer.eps)

    def _by_unit(self, tensor: Tensor) -> Tensor:
        return tensor.reshape(len(tensor), -1, self._rows).mT


class GroupNormBlock(NormalisationBlock[nn.GroupNorm]):
    """The running sums of a group normalisation: over a channel's positions, of g x with x normalised, and of g."""

    @staticmethod
    def _sizes(layer: nn.GroupNorm, input_shape: torch.Size) -> tuple[int, int, int]:
        return layer.num_channels, 1 + (layer.bias is not None), input_shape[2:].numel()

    def _normalised(self, inputs: Tensor) -> Tensor:
        return functional.group_norm(inputs, self._layer.num_groups, eps=self._layer.eps)


class BatchNormBlock(NormalisationBlock[BatchNorm]):
    """The running sums of a batch normalisation in evaluation, which is affine: y = weight normal + bias.

    With normal = (x - mean) exp(-log_variance / 2), the gradient of the mean is a multiple of the bias's, and that of
    log_variance a multiple of the weight's. So two sums are kept, and all four are computed from them.
    """

    @staticmethod
    def _sizes(layer: BatchNorm, input_shape: torch.Size) -> tuple[int, int, int]:
        return len(layer.weight), 2, input_shape[2:].numel()

    def diagonal(self, examples: int) -> Tensor:
        """See `Block.diagonal`."""
        return super().diagonal(examples)[:, _WEIGHT_OR_BIAS] * self._multiples.square()

    def per_example(self, gradients: Tensor) -> Tensor:
        """See `Block.per_example`."""
        return super().per_example(gradients)[:, :, _WEIGHT_OR_BIAS] * self._multiples

    def _normalised(self, inputs: Tensor) -> Tensor:
        shape = (-1, *[1] * (inputs.ndim - 2))
        return (inputs - self._layer.mean.detach().view(shape)) * self._root.view(shape)

    def _moments(self, own: Tensor) -> Tensor:
        multiples = self._multiples
        of_four = own[:, _WEIGHT_OR_BIAS][:, :, _WEIGHT_OR_BIAS]
        return of_four * (multiples[:, :, None] * multiples[:, None, :])

    @property
    def _root(self) -> Tensor:
        return (-self._layer.log_variance.detach() / 2).exp()

    @property
    def _multiples(self) -> Tensor:
        """The four gradients of a channel as multiples of the weight's or the bias's, shape (channels, 4)."""
        weight, root = self._layer.weight.detach(), self._root
        ones = torch.ones_like(weight)
        return torch.stack([ones, ones, -weight * root, -weight / 2], dim=1)
