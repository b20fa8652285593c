"""Products of a Fisher with vectors, and its leading eigenvectors, without the matrix itself."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd import grad
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedfisher_core.models.spec import Parameters

_BATCH_SIZE = 100
_SEED = 0
BLOCKS = 4
"""Blocks of a Krylov space. The tests compare what they find with the eigenvalues of whole matrices."""

FURTHER = 4
"""Vectors of a block in addition to those that are asked for, so that the last of these is found as well."""


@dataclass(frozen=True)
class FisherProduct:
    """The mean over examples of J^T H J at given weights, as an operator on vectors.

    J is the Jacobian of the outputs z in the weights. H = diag(p) - p p^T for the probabilities p of the outputs; with
    labels, H = (p - e_y) (p - e_y)^T instead, which makes the empirical Fisher.

    Args:
        network: in evaluation mode; its own weights do not count.
        weights: in the order of the network's d parameters.
        inputs: examples, shape (examples, ...).
        labels: shape (examples,), for the empirical Fisher; None for the Fisher of the model's own outputs.
    """

    network: nn.Module
    weights: Parameters
    inputs: Tensor
    labels: Tensor | None = None

    @property
    def size(self) -> int:
        """The number d of weights."""
        return sum(tensor.numel() for tensor in self.weights.values())

    def __call__(self, columns: Tensor) -> Tensor:
        """Multiply vectors, shape (d, vectors), of the weights' type."""
        total = torch.zeros_like(columns)
        for start in range(0, len(self.inputs), _BATCH_SIZE):
            stop = start + _BATCH_SIZE
            self._add(total, columns, self.inputs[start:stop], None if self.labels is None else self.labels[start:stop])
        return total.div_(len(self.inputs))

    @torch.enable_grad()
    def _add(self, total: Tensor, columns: Tensor, inputs: Tensor, labels: Tensor | None) -> None:
        """Add a batch's sum of J^T H J V."""
        weights = {name: tensor.detach().requires_grad_() for name, tensor in self.weights.items()}
        # The other forms of attention have no second derivatives on a CPU.
        with sdpa_kernel(SDPBackend.MATH):
            outputs = functional_call(self.network, weights, (inputs,))
        probabilities = outputs.detach().softmax(1)

        def pulled(back: Tensor, **graph: bool) -> Tensor:
            """J^T u for u of shape (examples, outputs)."""
            return flat(grad(outputs, list(weights.values()), back, materialize_grads=True, **graph))

        # J^T u is linear in u, so that the derivative of v^T J^T u is J v.
        backs = torch.zeros_like(outputs, requires_grad=True)
        linear = pulled(backs, create_graph=True)
        for column, into in zip(columns.T, total.T, strict=True):
            (along,) = grad(linear @ column, backs, retain_graph=True)
            into += pulled(_weighted(along, probabilities, labels), retain_graph=True)


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """Join tensors to one vector, in their order."""
    return torch.cat([tensor.flatten() for tensor in tensors])


def _weighted(along: Tensor, probabilities: Tensor, labels: Tensor | None) -> Tensor:
    """H u of every example, for u of shape (examples, outputs)."""
    if labels is None:
        return probabilities * (along - (probabilities * along).sum(1, keepdim=True))
    residuals = probabilities - nn.functional.one_hot(labels, probabilities.shape[1])
    return residuals * (residuals * along).sum(1, keepdim=True)


def leading_directions(product: FisherProduct, rank: int) -> Tensor:
    """Find the leading eigenvectors of a Fisher, each as long as the root of its eigenvalue, the longest first.

    They are the best in the block Krylov space of random vectors, four more than `rank`, and their next three images
    (Musco and Musco 2015). With `rank` = d this space holds everything, so that D^T D of the result is the Fisher.

    Returns:
        D, shape (min(rank, d), d), of the weights' type and on their device.
    """
    size, like = product.size, flat(product.weights.values())
    kept = min(rank, size)
    generator = torch.Generator().manual_seed(_SEED)
    block = torch.randn(size, min(rank + FURTHER, size), generator=generator, dtype=torch.float64).to(like)
    basis = like.new_empty(size, 0)
    images = like.new_empty(size, 0)
    for _ in range(BLOCKS):
        block = _beyond(basis, block[:, : size - basis.shape[1]])
        image = product(block)
        basis, images = torch.cat([basis, block], dim=1), torch.cat([images, image], dim=1)
        if basis.shape[1] == size:
            break
        block = image
    inside = (basis.T @ images).double()
    values, vectors = torch.linalg.eigh((inside + inside.T) / 2)
    # Rounding makes eigenvalues that are 0 negative.
    scaled = vectors[:, -kept:] * values[-kept:].clamp(min=0).sqrt()
    return (basis @ scaled.to(like)).T.flip(0).contiguous()


def _beyond(basis: Tensor, block: Tensor) -> Tensor:
    """An orthonormal basis of what a block adds to a basis, both as columns."""
    # Where the Fisher's rank is small, the first pass leaves columns of rounding alone. The second makes them full
    # size, with what they have of the basis. The third removes that.
    for _ in range(3):
        block = torch.linalg.qr(block - basis @ (basis.T @ block)).Q
    return block
