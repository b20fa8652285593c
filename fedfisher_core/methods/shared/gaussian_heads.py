"""Linear heads in closed form, from the moments of the features of all clients."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfisher_core.client.statistics.class_sums import ClassSums
from fedfisher_core.client.statistics.features import head_of, require_head
from fedfisher_core.client.statistics.gram import Gram
from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.uploads import Upload
from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.shared.averaging import Sums
from fedfisher_core.models.spec import ModelSpec, Parameters

ABSENT_PRIOR = 1e-12
"""Prior probability of a class that no client has, as a part of that of the most frequent class."""
# Moments are sent in float32. Its rounding gives directions without any variance up to this part of the largest.
_NOTHING = 1e-6
# Counts, sums and products are each rounded, and a covariance adds up several of them.
_ROUNDINGS = 8


@dataclass(frozen=True)
class Moments:
    """Moments of the features of all clients together, in double precision.

    Args:
        counts: examples n_c of each class, shape (classes,).
        sums: of the features of each class, shape (classes, features).
        products: sum of x x^T over all examples, shape (features, features).
    """

    counts: Tensor
    sums: Tensor
    products: Tensor

    @classmethod
    def of(cls, uploads: Sequence[Upload]) -> "Moments":
        """Add up the clients' label counts, sums by class and Gram matrices."""
        totals: dict[str, Tensor] = {}
        for upload in uploads:
            for term, tensors in terms(upload).items():
                (tensor,) = tensors.values()
                added = upload.num_examples * tensor
                totals[term] = totals[term].add_(added) if term in totals else added
        return cls(**totals)

    @classmethod
    def of_sums(cls, sums: Sums) -> "Moments":
        """Take the sums that secure aggregation gives."""
        taken = {}
        for term, tensors in sums.totals.items():
            (taken[term],) = tensors.values()
        return cls(**taken)

    @property
    def means(self) -> Tensor:
        """Mean features of each class; 0 where no client has it."""
        return self.sums / self.counts.clamp(min=1)[:, None]

    @property
    def total_covariance(self) -> Tensor:
        """Covariance of the features around the mean of all."""
        number = self.counts.sum()
        mean = self.sums.sum(0) / number
        return (self.products - number * torch.outer(mean, mean)) / (number - 1).clamp(min=1)

    @property
    def within_covariance(self) -> Tensor:
        """Covariance of the features around the means of their classes."""
        held = (self.counts > 0).sum()
        between = self.sums.T @ self.means
        return (self.products - between) / (self.counts.sum() - held).clamp(min=1)


def terms(upload: Upload) -> dict[str, Parameters]:
    """What one client adds to the moments, divided by its number of examples: "counts", "sums" and "products"."""
    # Of the counts themselves: in a secure sum, a large client counts as one with fewer examples.
    counts = upload[LabelCounts].tensors["counts"].double()
    counts = counts / counts.sum().clamp(min=1)
    sums = upload[ClassSums].tensors["sums"].double()
    ((layer, products),) = upload[Gram].tensors.items()
    return {"counts": {"counts": counts}, "sums": {"sums": sums}, "products": {layer: products.double()}}


def require_biased_head(spec: ModelSpec) -> None:
    """Refuse networks that can't hold a classifier of normal distributions.

    Raises:
        UnsupportedLayerError: the network is not one linear layer.
        InputError: the layer has no bias.
    """
    if require_head(spec).bias is None:
        raise InputError("model.bias=false: the closed form has a bias, which is no part of its weights; allowed: true")


def inverted(covariance: Tensor, moments: Moments, *, shrinkage: float = 0, ridge: float = 0) -> tuple[Tensor, Tensor]:
    """Eigenvectors of a covariance, and the inverses of its eigenvalues after `shrinkage` and `ridge`.

    Args:
        covariance: see `linear_head`, as the other arguments.

    Returns:
        V, one vector a column, and d: the inverse is V diag(d) V^T, with d = 0 where nothing varies.
    """
    values, vectors = torch.linalg.eigh((covariance + covariance.T) / 2)
    # A covariance is a difference of moments. Where nothing varies, only their rounding is left.
    rounding = _ROUNDINGS * torch.finfo(torch.float32).eps * moments.products.trace() / moments.counts.sum()
    values = torch.where(values.max() > rounding, values.clamp(min=0), 0)
    known = (1 - shrinkage) * values + (shrinkage + ridge) * values.mean()
    held = known > _NOTHING * known.max()
    return vectors, torch.where(held, 1 / torch.where(held, known, 1), 0)


def linear_head(
    spec: ModelSpec, moments: Moments, covariance: Tensor, *, shrinkage: float = 0, ridge: float = 0
) -> Parameters:
    """Classify by normal distributions of one covariance S; gives the weights of the network.

    Logits are mu_c^T S^+ x - mu_c^T S^+ mu_c / 2 + log(n_c / n). Directions in which features don't vary have no say,
    unless `shrinkage` or `ridge` adds to their variance. A class that no client has gets the row of the most frequent
    class, with 1e-12 of its prior, so that its probability stays below 1e-12 for any features.

    Args:
        spec: the network, one linear layer with a bias.
        covariance: shape (features, features), in double precision; what rounding made negative counts as 0,
            and where nothing varies, all of it.
        shrinkage: a in (1 - a) S + a s I, s the mean variance.
        ridge: r in S + r s I.
    """
    vectors, inverse = inverted(covariance, moments, shrinkage=shrinkage, ridge=ridge)
    means, counts = moments.means, moments.counts
    weight = ((means @ vectors) * inverse) @ vectors.T
    bias = (counts / counts.sum()).log() - (weight * means).sum(1) / 2
    absent, frequent = counts <= 0, counts.argmax()
    weight = torch.where(absent[:, None], weight[frequent], weight)
    bias = torch.where(absent, bias[frequent] + math.log(ABSENT_PRIOR), bias)
    name, _ = head_of(spec.skeleton())
    return {f"{name}.weight": weight.float(), f"{name}.bias": bias.float()}
