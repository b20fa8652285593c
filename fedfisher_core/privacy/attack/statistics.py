"""The Fisher information of generated images, in the form that clients upload and as a function of the images.

The values and the scale of the Kronecker factors are those of `fedfisher_core.fisher` for the exact estimator of
softmax cross-entropy. Here they are differentiable in the images, and of several sets of images at a time.
"""

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional

from fedfisher_core.engine.errors import InputError, UnsupportedLayerError
from fedfisher_core.fisher.capture import never_called
from fedfisher_core.fisher.convolution import Geometry
from fedfisher_core.fisher.estimators import Exact, nominal_directions
from fedfisher_core.fisher.layers import Layer, matrix_layers


def categorical_root_of(logits: Tensor) -> Tensor:
    """A root of diag(p) - p p^T as `fisher.estimators.categorical_root` has it, with a finite gradient everywhere.

    From logits z with p = softmax(z), shape (examples, classes), to columns, shape (classes - 1, examples, classes).
    Shares and lengths are formed as logarithms. These stay finite where probabilities vanish, where the derivative of a
    ratio or of a square root would not.
    """
    log = logits.log_softmax(1)
    tail = log.flip(1).logcumsumexp(1).flip(1)
    here, after = tail[:, :-1], tail[:, 1:]
    length = (log[:, :-1] + after - here) / 2
    share = (log[:, None, :] - after[:, :, None]).masked_fill(_not_below(logits), -torch.inf)
    below = -(share + length[:, :, None]).exp()
    diagonal = functional.pad(length.exp().diag_embed(), (0, 1))
    return (below + diagonal).transpose(0, 1)


def _not_below(logits: Tensor) -> Tensor:
    """Where a column of the root is not below its diagonal, shape (classes - 1, classes)."""
    classes = logits.shape[1]
    return torch.ones(classes - 1, classes, dtype=torch.bool, device=logits.device).tril()


class _GramDistance(torch.autograd.Function):
    """Squared distances of scaled Gram matrices from one matrix, with a gradient that takes a single product."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, target: Tensor, scale: float) -> Tensor:
        """Take vectors of shape (outer, sets, inner, n, m); see `Moment`."""
        difference = (vectors @ vectors.mT).sum((0, 2)).mul_(scale).sub_(target)
        ctx.save_for_backward(vectors, difference)
        ctx.scale = scale
        return difference.square().sum((1, 2))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Multiply the vectors V by 2 s (D + D^T), D = s V V^T - T, where T need not be symmetric."""
        vectors, difference = ctx.saved_tensors
        factor = (difference + difference.mT) * (2 * ctx.scale * gradient)[:, None, None]
        return factor[:, None] @ vectors, None, None


@dataclass(frozen=True)
class Moment:
    """A scaled sum of v v^T for each set of images: one Kronecker factor of each.

    Args:
        vectors: the v in columns, shape (outer, sets, inner, n, m); the sum is over all but sets and n.
    """

    vectors: Tensor
    scale: float

    def clipped(self, limit: float) -> "Moment":
        """Shorten what each image adds to the sum, before the scale, to a Frobenius norm, which may be infinite."""
        each = self.vectors.permute(1, 2, 3, 0, 4).flatten(3)
        # Both products have the same norm, and the smaller one is cheaper.
        small = each @ each.mT if each.shape[2] <= each.shape[3] else each.mT @ each
        lengths = torch.linalg.vector_norm(small, dim=(2, 3))
        return Moment(self.vectors * (lengths / limit).clamp(min=1).rsqrt()[:, :, None, None], self.scale)

    def squared_distance(self, target: Tensor) -> Tensor:
        """Sum of squared differences from a factor of shape (n, n), for each set, shape (sets,)."""
        vectors = self.vectors
        if vectors.shape[-2] > vectors.shape[-1]:
            # A matrix for each of the outer and inner indices would be larger than all vectors, so these are merged.
            vectors = vectors.permute(1, 3, 0, 2, 4).flatten(2)[None, :, None]
        return _GramDistance.apply(vectors, target.to(vectors), self.scale)


@dataclass(frozen=True)
class KroneckerMoments:
    """Both factors of one layer's Kronecker block, for each set of images."""

    inputs: Moment
    outputs: Moment


@dataclass(frozen=True)
class _Seen:
    """What one layer saw of all sets of images.

    Args:
        patches: what its matrix is multiplied by, in columns, shape (sets, images, columns, windows); with a bias, a
            patch ends in a one.
        gradients: at its outputs, shape (directions, sets, images, rows, windows).
    """

    layer: Layer
    patches: Tensor
    gradients: Tensor

    @staticmethod
    def of(layer: Layer, inputs: Tensor, gradients: Tensor, *, sets: int) -> "_Seen":
        """Bring both kinds of layers into one form.

        Args:
            inputs: of the layer, shape (sets x images, ...).
            gradients: at its outputs, shape (directions, sets x images, ...).
        """
        if isinstance(layer, nn.Linear):
            patches, gradients = inputs[:, :, None], gradients[..., None]
        else:
            geometry = Geometry.of(layer, inputs.shape, gradients.shape[1:])
            patches = functional.unfold(
                geometry.pad(inputs), geometry.kernel, dilation=geometry.dilation, stride=geometry.stride
            )
            gradients = gradients.flatten(3)
        if layer.bias is not None:
            patches = torch.cat([patches, torch.ones_like(patches[:, :1])], dim=1)
        return _Seen(layer, patches.unflatten(0, (sets, -1)), gradients.unflatten(1, (sets, -1)))


def kfac_of(network: nn.Module, images: Tensor) -> dict[str, KroneckerMoments]:
    """Compute the Kronecker factors of sets of images, by layer; with a graph if the images have one.

    Args:
        network: in evaluation mode.
        images: as the network takes them, shape (sets, images, channels, height, width).

    Raises:
        InputError: the images have no sets, or the outputs are not one row an image.
        UnsupportedLayerError: a layer has no Fisher block, or is not used once.
    """
    layers, outputs = _look(network, images)
    scale = nominal_directions(Exact(), outputs) ** 0.5
    factors = {}
    for name, seen in layers.items():
        examples, windows = images.shape[1], seen.gradients.shape[-1]
        factors[name] = KroneckerMoments(
            inputs=Moment(seen.patches[None], scale / examples),
            outputs=Moment(seen.gradients, 1 / (scale * examples * windows)),
        )
    return factors


def diagonal_of(network: nn.Module, images: Tensor, *, clip: float = math.inf) -> dict[str, Tensor]:
    """Compute the diagonal of the Fisher of sets of images; network, images and errors are those of `kfac_of`.

    Args:
        clip: to which the L2 norm of an image's squared derivatives, those of all layers together, is shortened.

    Returns:
        By layer, in the shape of the layer's matrix, (sets, rows, columns), a bias in the last column.
    """
    squares = {name: _squares(seen) for name, seen in _look(network, images)[0].items()}
    lengths = torch.stack([length for length, _ in squares.values()]).sum(0)
    # A number of at least 1 has a root with a finite gradient, a length may not.
    shares = (lengths / clip**2).clamp(min=1).rsqrt() / images.shape[1]
    return {name: weighted(shares) for name, (_, weighted) in squares.items()}


def _squares(seen: _Seen) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Square the derivatives of one layer's matrix, and add them up over directions.

    Returns:
        Squared norms, shape (sets, images), and a function from weights of this shape to sums over images.
    """
    if isinstance(seen.layer, nn.Linear):
        rows, columns = seen.gradients.squeeze(-1).square().sum(0), seen.patches.squeeze(-1).square()
        lengths = rows.square().sum(2) * columns.square().sum(2)
        return lengths, lambda weights: (weights[..., None] * rows).mT @ columns
    # An example's gradients are summed over windows before they are squared: no product of moments gives them.
    each = (seen.gradients @ seen.patches.mT).square().sum(0)
    return each.square().sum((2, 3)), lambda weights: (weights[..., None, None] * each).sum(1)


def _look(network: nn.Module, images: Tensor) -> tuple[dict[str, _Seen], int]:
    """Run images forward, and every direction of the outputs' root back to every layer.

    Returns:
        What each layer saw, and the number of outputs.
    """
    if images.ndim != 5:
        raise InputError(f"images have shape {tuple(images.shape)}; allowed: (sets, images, channels, height, width)")
    layers = matrix_layers(network)
    inputs: dict[str, Tensor] = {}
    edges: dict[str, GradientEdge] = {}

    def record(name: str, layer: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> None:
        if name in edges:
            raise UnsupportedLayerError(f"layer {name!r} is used twice in one forward pass; allowed: once")
        inputs[name] = arguments[0]
        edges[name] = get_gradient_edge(output)

    differentiable = torch.is_grad_enabled() and images.requires_grad
    examples = images.flatten(0, 1) if differentiable else images.detach().flatten(0, 1).requires_grad_()
    with ExitStack() as hooks, torch.enable_grad():
        for name, layer in layers.items():
            hooks.enter_context(layer.register_forward_hook(partial(record, name)))
        outputs = network(examples)
        if outputs.ndim != 2 or len(outputs) != len(examples):
            raise InputError(
                f"the network maps {len(examples)} images to shape {tuple(outputs.shape)}; allowed: one row an image"
            )
        if missing := layers.keys() - edges:
            raise never_called(min(missing))
        root = categorical_root_of(outputs)
        gradients = torch.autograd.grad(
            outputs,
            list(edges.values()),
            root if differentiable else root.detach(),
            is_grads_batched=True,
            create_graph=differentiable,
        )
    seen = {
        name: _Seen.of(
            layers[name], inputs[name] if differentiable else inputs[name].detach(), gradient, sets=len(images)
        )
        for name, gradient in zip(edges, gradients, strict=True)
    }
    return seen, outputs.shape[1]
