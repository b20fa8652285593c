"""Projections onto the span of every layer's inputs, and away from it (MA-Echo)."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Self

import torch
from torch import Size, Tensor, nn
from torch.nn import functional

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.features import watch
from fedfisher_core.client.statistics.statistic import ServerView, TensorStatistic
from fedfisher_core.communication.wire.structure import Structure
from fedfisher_core.communication.wire.tensors import SYMMETRIC
from fedfisher_core.fisher.blocks import WORKSPACE
from fedfisher_core.fisher.capture import paddings_of, require_rows, trace
from fedfisher_core.fisher.convolution import Geometry, PatchMoment, RowMoment, patch_moment
from fedfisher_core.fisher.layers import Layer, matrix_layers
from fedfisher_core.fisher.weight_sharing import require_positions, without_padding
from fedfisher_core.models.spec import ModelSpec

REGULARISER = 1.0
"""z as a multiple of the mean eigenvalue of the inputs' second moment; the paper names no value."""

_BATCH_SIZE = 500
# From the authors' code, with the exponent 0.8 of the code on which it is based.
_FORGETTING = 0.5
_LINEAR_REGULARISER = 0.01**0.8
_CONVOLUTION_REGULARISER = 0.00001**0.8
_STRIDE = 2


@dataclass(frozen=True)
class NullSpaceProjection(TensorStatistic):
    """P = X^T (X X^T + z I)^-1 X of every layer's inputs X (MA-Echo, section 4).

    The rows of X are the inputs of a linear layer at each of its positions that hold no padding, or the patches of a
    convolution with its own stride and padding. A bias is the weight of a last input that is always 1. One pass over
    the data gives M, the mean of x x^T over the rows, and P = M (M + z I)^-1. As M is a mean, z means the same for any
    number of rows. It is M's mean eigenvalue: P keeps the length of directions in which the inputs are much larger, and
    removes those in which they are much smaller. With a small z almost all directions would stay, since a layer sees
    more rows than it has inputs. An aggregation would then have none to move in (section 6), while Table 6 says that a
    few directions stay. The batches of 500 examples affect only the rounding.
    """

    name: ClassVar[str] = "null_space_projection"
    server_view: ClassVar[ServerView] = ServerView.EACH
    structure: ClassVar[Structure] = SYMMETRIC

    @classmethod
    def compute(cls, local: Local) -> Self:
        """Pass once over the client's examples; moments and projections are in double precision."""
        layers = matrix_layers(local.network)
        padded = paddings_of(local.network)
        tokens: dict[str, Tensor] = {}
        moments: dict[str, _LinearMoment | _ConvolutionMoment] = {}

        def see(name: str, inputs: Tensor, outputs: Tensor) -> None:
            if name in padded:
                tokens[name] = inputs
                return
            if name not in moments:
                moments[name] = _moment(layers[name], inputs, outputs)
            counted = without_padding(padded, tokens) if inputs.ndim == 3 else None
            require_positions(name, inputs.shape[1:-1].numel(), counted)
            moments[name].add(inputs if counted is None else inputs[counted])

        watch(local, {**layers, **padded}, see, batch_size=_BATCH_SIZE)
        return cls({name: span_projection(moments[name].mean()).float() for name in layers})

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        """Name one square matrix for every layer."""
        return {name: Size([_inputs(layer)] * 2) for name, layer in matrix_layers(spec.skeleton()).items()}


@dataclass(frozen=True)
class OfficialProjection(TensorStatistic):
    """The matrix that MA-Echo's authors compute in place of I - P, by one recursive step for each row.

    A row is the mean input of a batch, as large as those of the training. For a convolution, the rows are the patches
    of the batch's mean feature maps at every second position, without padding. The matrix P starts as the identity. For
    each row r, with k = P r, it becomes P - c k k^T / (z + r^T k). Recursive least squares have c = 1. Here c = 1/2, so
    that each row halves what a direction along it keeps.
    """

    name: ClassVar[str] = "official_projection"
    server_view: ClassVar[ServerView] = ServerView.EACH
    structure: ClassVar[Structure] = SYMMETRIC

    @classmethod
    def compute(cls, local: Local) -> Self:
        """Pass once over the client's examples in their order, in double precision."""
        layers = matrix_layers(local.network)
        device = local.examples.inputs.device
        matrices = {name: torch.eye(_inputs(one), dtype=torch.float64, device=device) for name, one in layers.items()}

        def see(name: str, inputs: Tensor, _: Tensor) -> None:
            layer = layers[name]
            regulariser = _LINEAR_REGULARISER if isinstance(layer, nn.Linear) else _CONVOLUTION_REGULARISER
            for row in _mean_rows(layer, inputs).double():
                image = matrices[name] @ row
                scaled = image * (_FORGETTING / (regulariser + row @ image)).sqrt()
                matrices[name] -= torch.outer(scaled, scaled)

        watch(local, layers, see, batch_size=local.batch_size)
        return cls({name: matrix.float() for name, matrix in matrices.items()})

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        """Name one square matrix for every layer."""
        return dict(_shapes(spec))


class _LinearMoment:
    """The running sum of x x^T over a linear layer's inputs."""

    def __init__(self, size: int, *, like: Tensor) -> None:
        self._total = like.new_zeros(size, size, dtype=torch.float64)
        self._rows = 0

    def add(self, inputs: Tensor) -> None:
        """Add a batch of inputs, shape (examples, ..., inputs)."""
        inputs = inputs.flatten(0, -2)
        if len(self._total) > inputs.shape[1]:
            inputs = _append_one(inputs)
        self._total += inputs.T @ inputs
        self._rows += len(inputs)

    def mean(self) -> Tensor:
        """Mean of x x^T over all rows."""
        return self._total / max(self._rows, 1)


class _ConvolutionMoment:
    """The running sum of x x^T over a convolution's patches."""

    def __init__(self, geometry: Geometry, *, like: Tensor) -> None:
        self._geometry = geometry
        self._moment: PatchMoment | RowMoment = patch_moment(geometry, like=like)
        self._rows = 0

    def add(self, inputs: Tensor) -> None:
        """Add a batch of inputs, shape (examples, channels, height, width)."""
        padded = self._geometry.pad(inputs)
        if isinstance(self._moment, RowMoment):
            self._moment.add(padded)
        else:
            each = self._geometry.patch_size * self._geometry.windows * padded.element_size()
            for part in padded.split(max(1, WORKSPACE // each)):
                self._moment.add(self._geometry.patches(part))
        self._moment.flush()
        self._rows += len(inputs) * self._geometry.windows

    def mean(self) -> Tensor:
        """Mean of x x^T over all patches."""
        return self._moment.value() / self._rows


def _moment(layer: Layer, inputs: Tensor, outputs: Tensor) -> _LinearMoment | _ConvolutionMoment:
    if isinstance(layer, nn.Linear):
        return _LinearMoment(_inputs(layer), like=inputs)
    return _ConvolutionMoment(Geometry.of(layer, inputs.shape, outputs.shape), like=inputs)


def span_projection(moment: Tensor, regulariser: float = REGULARISER) -> Tensor:
    """Project onto the directions in which inputs are large.

    Args:
        moment: M, the mean of x x^T over inputs x, shape (n, n), double precision.
        regulariser: z as a multiple of the mean eigenvalue of M.

    Returns:
        M (M + z I)^-1, symmetric to the last bit, and exactly 0 in rows of inputs that are always 0.
    """
    scale = moment.diagonal().mean()
    # If all inputs are always 0, the projection is 0 for any z.
    shift = regulariser * torch.where(scale > 0, scale, 1)
    factor = torch.linalg.cholesky(moment + shift * torch.eye(len(moment), dtype=moment.dtype, device=moment.device))
    projection = torch.cholesky_solve(moment, factor)
    return (projection + projection.T) / 2


def _mean_rows(layer: Layer, inputs: Tensor) -> Tensor:
    """The rows that the authors' code makes of a batch, shape (rows, inputs)."""
    mean = inputs.mean(0, keepdim=True)
    if isinstance(layer, nn.Conv2d):
        height, width = layer.kernel_size
        if mean.shape[2] < height or mean.shape[3] < width:
            return mean.new_empty(0, _inputs(layer))
        mean = functional.unfold(mean, (height, width), stride=_STRIDE)[0].T
    return mean if layer.bias is None else _append_one(mean)


def _append_one(rows: Tensor) -> Tensor:
    return torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)


def _inputs(layer: Layer) -> int:
    """Number of columns of a layer's matrix, including that of a bias."""
    return layer.weight[0].numel() + (layer.bias is not None)


@lru_cache
def _shapes(spec: ModelSpec) -> dict[str, Size]:
    """The shapes, if each layer of the network sees one row, or one stack of maps, an example."""
    network = spec.load(spec.initialise(torch.Generator())).eval()
    layers = matrix_layers(network)
    require_rows(layers, trace(network, layers, spec.inputs.zeros(1)))
    return {name: Size([_inputs(layer)] * 2) for name, layer in layers.items()}
