"""Sums over a client's examples, none of which can change them by more than a clip."""

from collections.abc import Mapping, Set
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedfisher_core.engine.errors import InputError, MemoryLimitError
from fedfisher_core.fisher.blocks import Approximation, Portions
from fedfisher_core.fisher.capture import Trace, backpropagate, measure, require_rows, trace
from fedfisher_core.fisher.convolution import Geometry
from fedfisher_core.fisher.estimators import Exact, directions_per_example, nominal_directions, output_directions
from fedfisher_core.fisher.layers import Layer, matrix_layers
from fedfisher_core.privacy.release import Contributions, Matrices, Outer, clip_factors, moment_clips, second_moments
from fedfisher_core.settings import PrivacySettings


@dataclass(frozen=True)
class LayerShape:
    """The sizes of a layer's Fisher block.

    Args:
        rows: of the layer's matrix, its outputs.
        columns: of the layer's matrix, its inputs with that of a bias.
        windows: positions of one example that the layer looks at; 1 for a linear layer.
        geometry: of the windows; None for a linear layer.
        bias: whether the inputs end in a one.
    """

    rows: int
    columns: int
    windows: int
    geometry: Geometry | None
    bias: bool

    @staticmethod
    def of(layer: Layer, input_shape: torch.Size, output_shape: torch.Size) -> "LayerShape":
        """Read the sizes off a linear layer or an ungrouped convolution; both shapes have the examples first."""
        bias = layer.bias is not None
        if isinstance(layer, nn.Linear):
            return LayerShape(layer.out_features, layer.in_features + bias, 1, None, bias)
        geometry = Geometry.of(layer, input_shape, output_shape)
        return LayerShape(layer.out_channels, geometry.patch_size, geometry.windows, geometry, bias)

    def numbers(self, directions: int) -> int:
        """Most numbers that one example's contributions hold, with their intermediate results."""
        vectors = directions * self.windows
        made = self.windows * self.columns + 2 * vectors * self.rows
        if self.geometry is None:
            return made + 2 * self.columns + min(vectors, self.rows) ** 2
        squares = (directions + 1) * self.rows * self.columns
        return 2 * made + squares + min(self.windows, self.columns) ** 2 + min(vectors, self.rows) ** 2


class LayerExamples:
    """A chunk of examples as one layer sees them.

    Args:
        inputs: examples first.
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


_EXACT = Exact()
_SUPPORTED = frozenset({Approximation.DIAGONAL, Approximation.KFAC})

_MAX_CHUNK = 1024
"""Most examples summed in the model's precision before they join the double-precision total."""


@dataclass(frozen=True)
class MomentSum:
    """The sum of second moments of one layer that becomes one of its Kronecker factors.

    Args:
        total: symmetric, in double precision.
        clip: largest Frobenius norm of an example's part.
        scale: by which the mean over the examples becomes the factor.
    """

    total: Tensor
    clip: float
    scale: float


@dataclass(frozen=True)
class ClippedSums:
    """Sums that no example changes by more than a clip; sums that weren't asked for are empty.

    Args:
        squares: by layer, the sum of squared derivatives, in the shape of the layer's matrix and in double precision.
            An example changes all of them together by at most `diagonal_clip` in L2 norm.
        moments: by layer, the sums of x x^T and of g g^T, each of which an example changes by at most its own clip.
    """

    squares: dict[str, Tensor]
    moments: dict[str, tuple[MomentSum, MomentSum]]


def clipped_sums(
    model: nn.Module,
    inputs: Tensor,
    settings: PrivacySettings,
    *,
    approximations: Set[Approximation],
    memory_limit: int,
) -> ClippedSums:
    """Add up what every example contributes to the exact Fisher of a classifier, each clipped, without noise.

    The clips depend on the network's shape and on settings, never on data. In a layer of a inputs and S windows, an
    example's sum of x x^T over the windows has Frobenius norm at most S a times the mean square of its inputs (and
    exactly that in a linear layer), so its clip is `input_clip` S a. Its sum of g g^T over windows and directions has
    norm at most the sum of squares of these gradients, so its clip is `output_clip`. Each setting thus means the same
    in every layer. Inputs above their clip only lose their length. The solvers of FedFisher treat every layer
    separately, so a factor's scale does not matter there, as long as it is the same for all examples and clients. An
    example that isn't finite adds nothing.

    The settings' defaults are small, as noise is in proportion to clips: in networks trained on MNIST with privacy,
    nearly all examples reach the clip of the inputs. Many reach that of the derivatives, which most examples leave
    close to 0.

    Args:
        model: in evaluation mode.
        inputs: examples, shape (examples, ...), of the model's type; on any device.
        memory_limit: most bytes of working memory.

    Raises:
        InputError: there are no examples, one doesn't fit the memory, or an approximation can't be made private.
        UnsupportedLayerError: a layer has no Fisher block.
    """
    refused = sorted(approximations - _SUPPORTED)
    if refused or not approximations:
        allowed = ", ".join(sorted(_SUPPORTED))
        raise InputError(
            f"approximations={[str(one) for one in refused]} with privacy; allowed: one or both of {allowed}"
        )
    if len(inputs) == 0:
        raise InputError("inputs hold no examples; allowed: at least one")
    device = next(model.parameters()).device
    one_pass = _Pass(model, inputs[:1].to(device), settings, approximations=approximations, memory_limit=memory_limit)
    for chunk in inputs.split(one_pass.examples_per_chunk):
        one_pass.add(chunk.to(device))
    return one_pass.sums


class _Pass:
    """One pass over the data; see `clipped_sums` for the arguments."""

    def __init__(
        self,
        model: nn.Module,
        example: Tensor,
        settings: PrivacySettings,
        *,
        approximations: Set[Approximation],
        memory_limit: int,
    ) -> None:
        self._model = model
        self._layers = matrix_layers(model)
        self._clip = settings.diagonal_clip
        probe, graph_bytes = measure(model, self._layers, example)
        require_rows(self._layers, probe)
        classes = probe.outputs.shape[1]
        if classes < 2:
            raise InputError(f"the model has {classes} output; allowed: at least 2")
        self._directions = directions_per_example(_EXACT, classes)
        self._shapes = {
            name: LayerShape.of(layer, probe.inputs[name].shape, probe.output_shapes[name])
            for name, layer in self._layers.items()
        }
        like = probe.outputs.new_empty(0, dtype=torch.float64)
        shapes = self._shapes.items()
        self.sums = ClippedSums(
            {name: like.new_zeros(one.rows, one.columns) for name, one in shapes}
            if Approximation.DIAGONAL in approximations
            else {},
            {name: _empty_moments(one, settings, classes, like=like) for name, one in shapes}
            if Approximation.KFAC in approximations
            else {},
        )
        self.examples_per_chunk = self._fit(probe, graph_bytes, memory_limit)

    def _fit(self, probe: Trace, graph_bytes: int, memory_limit: int) -> int:
        """Number of examples whose working memory fits, with both approximations if possible, as in `FisherPass`."""
        totals = [*self.sums.squares.values(), *(one.total for pair in self.sums.moments.values() for one in pair)]
        shapes = self._shapes.values()
        both = sum(one.rows * one.columns + one.rows**2 + one.columns**2 for one in shapes) * torch.float64.itemsize
        outputs = [shape.numel() for shape in probe.output_shapes.values()]
        # The gradients of all directions, of one in flight and what a step of its backward pass holds, the output
        # directions with their intermediate results, and every layer's contributions.
        numbers = (self._directions + 1) * (sum(outputs) + max(outputs)) + 2 * max(outputs)
        numbers += 4 * self._directions * probe.outputs.shape[1]
        numbers += sum(shape.numbers(self._directions) for shape in self._shapes.values())
        example = graph_bytes + numbers * probe.outputs.element_size()
        largest = max(outputs) * probe.outputs.element_size()
        most = Portions.on(probe.outputs.device, memory=memory_limit)
        for held in (both, sum(total.nbytes for total in totals)):
            # Memory holds the totals and the parts of a chunk, hence the factor 2.
            if 2 * held + example <= memory_limit:
                return max(1, min((memory_limit - 2 * held) // example, most.outputs // largest, _MAX_CHUNK))
        raise MemoryLimitError(memory_limit, 2 * held + example)

    def add(self, inputs: Tensor) -> None:
        seen = trace(self._model, self._layers, inputs)
        vectors = output_directions(seen.outputs.detach(), estimator=_EXACT)
        gradients: dict[str, list[Tensor]] = {name: [] for name in self._layers}
        for index, vector in enumerate(vectors):
            for name, gradient in backpropagate(seen, vector, last=index + 1 == len(vectors)).items():
                gradients[name].append(gradient)
        chunk = {
            name: LayerExamples(shape, seen.inputs[name], gradients.pop(name)) for name, shape in self._shapes.items()
        }
        if self.sums.squares:
            self._add_squares({name: one.squares() for name, one in chunk.items()})
        for name, (inputs_sum, outputs_sum) in self.sums.moments.items():
            _add_clipped(inputs_sum, chunk[name].input_moments())
            _add_clipped(outputs_sum, chunk[name].output_moments())

    def _add_squares(self, squares: Mapping[str, Contributions]) -> None:
        """Clip the layers' parts together."""
        norms = torch.stack([one.squared_norms() for one in squares.values()]).sum(0)
        factors = clip_factors(norms, self._clip)
        for name, one in squares.items():
            self.sums.squares[name] += one.weighted_sum(factors)


def _empty_moments(
    shape: LayerShape, settings: PrivacySettings, classes: int, *, like: Tensor
) -> tuple[MomentSum, MomentSum]:
    """Zero sums of a layer's moments, in the scale of `fedfisher_core.fisher.blocks`."""
    scale = nominal_directions(_EXACT, classes) ** 0.5
    input_clip, output_clip = moment_clips(settings, windows=shape.windows, columns=shape.columns)
    return (
        MomentSum(
            total=like.new_zeros(shape.columns, shape.columns),
            clip=input_clip,
            scale=scale,
        ),
        MomentSum(
            total=like.new_zeros(shape.rows, shape.rows),
            clip=output_clip,
            scale=1 / (scale * shape.windows),
        ),
    )


def _add_clipped(moments: MomentSum, contributions: Contributions) -> None:
    factors = clip_factors(contributions.squared_norms(), moments.clip)
    moments.total.add_(contributions.weighted_sum(factors))
