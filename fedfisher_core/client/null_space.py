"""Projections onto the span of every layer's inputs, and off it (MA-Echo)."""

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from torch import Size, Tensor, nn
from torch.nn import functional

from fedfisher_core.client.statistic import ServerView, TensorStatistic
from fedfisher_core.client.watching import watch
from fedfisher_core.fisher.capture import require_rows, trace
from fedfisher_core.fisher.convolution import Geometry, PatchMoment, RowMoment, patch_moment
from fedfisher_core.fisher.layers import Layer, matrix_layers
from fedfisher_core.fisher.portions import WORKSPACE
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.wire.structure import Structure
from fedfisher_core.wire.symmetric import SYMMETRIC

if TYPE_CHECKING:
    from fedfisher_core.client.local import Local

REGULARISER = 1.0
"""z as a multiple of the mean eigenvalue of the inputs' second moment; the paper names no value."""

_BATCH_SIZE = 500
# What the authors' code has, with the exponent 0.8 of the code that it follows.
_FORGETTING = 0.5
_LINEAR_REGULARISER = 0.01**0.8
_CONVOLUTION_REGULARISER = 0.00001**0.8
_STRIDE = 2


@dataclass(frozen=True)
class NullSpaceProjection(TensorStatistic):
    """P = X^T (X X^T + z I)^-1 X of every layer's inputs X (MA-Echo, section 4).

    The rows of X are the inputs of a linear layer, or the patches of a convolution, with its own stride and padding; a
    bias is the weight of a last input that is always 1. One pass over the data gives M, the mean of x x^T over the
    rows, and P = M (M + z I)^-1, with z beside M so that it means the same for any number of rows. z is M's mean
    eigenvalue: directions in which the inputs are much larger keep their length under P, and those in which they are
    much smaller vanish. With a small z, almost all directions would stay, as a layer sees more rows than it has inputs,
    and an aggregation would have none to move in (section 6); Table 6 says that a few directions do. The batches, of
    500 examples, change nothing but the rounding.
    """

    name: ClassVar[str] = "null_space_projection"
    server_view: ClassVar[ServerView] = ServerView.EACH
    structure: ClassVar[Structure] = SYMMETRIC

    @classmethod
    def compute(cls, local: "Local") -> Self:
        """Pass once over the client's examples; moments are summed, and the projections computed, in double."""
        layers = matrix_layers(local.network)
        moments: dict[str, _LinearMoment | _ConvolutionMoment] = {}

        def see(name: str, inputs: Tensor, outputs: Tensor) -> None:
            if name not in moments:
                moments[name] = _moment(layers[name], inputs, outputs)
            moments[name].add(inputs)

        watch(local, layers, see, batch_size=_BATCH_SIZE)
        return cls({name: span_projection(moments[name].mean()).float() for name in layers})

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        """Name one square matrix for every layer."""
        return dict(_shapes(spec))


@dataclass(frozen=True)
class OfficialProjection(TensorStatistic):
    """What MA-Echo's authors compute in place of I - P, by one recursive step a row.

    A row is the mean input of a batch as large as those of the training; for a convolution, the patches of the batch's
    mean feature maps at every second position, without padding. With each row r and k = P r,
    P <- P - c k k^T / (z + r^T k), starting from the identity. c = 1/2, where recursive least squares have 1, halves
    what a direction keeps with every row that points along it.
    """

    name: ClassVar[str] = "official_projection"
    server_view: ClassVar[ServerView] = ServerView.EACH
    structure: ClassVar[Structure] = SYMMETRIC

    @classmethod
    def compute(cls, local: "Local") -> Self:
        """Pass once over the client's examples, in the order in which it keeps them; in double precision."""
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
        """Add a batch of inputs, shape (examples, inputs)."""
        if len(self._total) > inputs.shape[1]:
            inputs = _append_one(inputs)
        self._total += inputs.T @ inputs
        self._rows += len(inputs)

    def mean(self) -> Tensor:
        """Mean of x x^T over all rows."""
        return self._total / self._rows


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
        M (M + z I)^-1, symmetric to the last bit, and exactly 0 in rows of inputs that always are.
    """
    scale = moment.diagonal().mean()
    # Where all inputs are always 0, so is the projection, whatever z is.
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
    """Columns of a layer's matrix, with that of a bias."""
    return layer.weight[0].numel() + (layer.bias is not None)


@lru_cache
def _shapes(spec: ModelSpec) -> dict[str, Size]:
    """The shapes of a network whose layers each see one row, or one stack of maps, an example."""
    network = spec.load(spec.initialise(torch.Generator())).eval()
    layers = matrix_layers(network)
    require_rows(layers, trace(network, layers, spec.inputs.zeros(1)))
    return {name: Size([_inputs(layer)] * 2) for name, layer in layers.items()}
