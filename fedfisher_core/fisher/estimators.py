"""Which gradients a Fisher averages: the estimator, and the output directions that it gives.

The Fisher of a network z = f(x) is the mean over examples of J^T H J. J is the Jacobian of z, and H = diag(p) - p p^T
the Hessian of the softmax cross-entropy in z (Martens 2020, "New insights and perspectives on the natural gradient
method"). An estimator is a matrix L with L L^T = H, exactly or in expectation. Each column of L is backpropagated once.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedfisher_core.engine.errors import InputError


@dataclass(frozen=True)
class Exact:
    """The expectation over the model's own outputs, in closed form."""


@dataclass(frozen=True)
class Truncated:
    """The exact expectation without the output directions that carry next to nothing; see `truncation`.

    An example that needs more directions than `most` keeps some of them. The others are replaced by drawn directions,
    so that the expectation stays the same.

    Args:
        tolerance: largest part of the mean over examples of trace H that is left out; above 0, below 1.
        most: most directions of an example; None for no limit.
    """

    tolerance: float
    most: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.tolerance < 1:
            raise InputError(f"tolerance={self.tolerance}; allowed for a truncated Fisher: above 0, below 1")
        if self.most is not None and self.most < 1:
            raise InputError(f"most={self.most}: a truncated Fisher needs at least 1 direction, or no limit (None)")


@dataclass(frozen=True)
class MonteCarlo:
    """The mean over `samples` targets for each example, drawn from the model's own outputs."""

    samples: int = 1

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise InputError(f"samples={self.samples}: a Monte-Carlo Fisher needs at least 1")


@dataclass(frozen=True)
class Empirical:
    """The true targets in place of the model's outputs."""


Estimator = Exact | Truncated | MonteCarlo | Empirical


def draws_directions(estimator: Estimator) -> bool:
    """Whether the estimator may draw directions, so that the Fisher has a sampling error."""
    return isinstance(estimator, MonteCarlo) or (isinstance(estimator, Truncated) and estimator.most is not None)


def directions_per_example(estimator: Estimator, outputs: int) -> int:
    """The most directions, and so backward passes, that an example needs."""
    match estimator:
        case MonteCarlo(samples):
            return samples
        case Empirical():
            return 1
        case Truncated(_, most) if most is not None:
            return min(most, outputs - 1)
        case Exact() | Truncated():
            return outputs - 1


def nominal_directions(estimator: Estimator, outputs: int) -> int:
    """C', the number of directions by which nngeometry scales each Kronecker factor; it cancels in their product."""
    if isinstance(estimator, Exact | Truncated):
        return outputs
    return directions_per_example(estimator, outputs)


def sampling_noise(examples: int, samples: int, generator: torch.Generator) -> Tensor:
    """Draw all the randomness of a sampled Fisher at once, so that the chunk size cannot change it.

    Returns:
        Uniform numbers of shape (examples, samples).
    """
    return torch.rand(examples, samples, generator=generator, device=generator.device, dtype=torch.float64)


def output_directions(
    outputs: Tensor,
    *,
    estimator: Estimator,
    labels: Tensor | None = None,
    noise: Tensor | None = None,
    leading: int | None = None,
) -> Tensor:
    """The columns of L for every example, shape (directions, examples, outputs).

    Args:
        outputs: the model's outputs z, shape (examples, outputs).
        labels: for `Empirical`, classes of shape (examples,).
        noise: from `sampling_noise` for these examples, if directions are drawn. For `Truncated`, the drawn directions
            replace those that are not kept.
        leading: for `Truncated`, how many directions of each example are kept.
    """
    probabilities = outputs.softmax(dim=1)
    match estimator:
        case Exact():
            return categorical_root(probabilities)
        case Truncated():
            assert leading is not None
            kept = leading_root(probabilities, leading)
            return kept if noise is None else torch.cat([kept, drawn_directions(probabilities, leading, noise)])
        case MonteCarlo():
            assert noise is not None
            return drawn_directions(probabilities, 0, noise)
        case Empirical():
            assert labels is not None
            return _residuals(probabilities, labels[:, None]).transpose(0, 1)


def categorical_root(probabilities: Tensor, columns: int | None = None) -> Tensor:
    """A root of diag(p) - p p^T that loses no digits when one probability is close to 1.

    It is the Cholesky factor in closed form (Tanabe and Sagae 1992). The remaining mass 1 - p_1 - ... - p_c is summed
    from the last class, so that it is never a difference of rounded numbers. The last column is zero and is left out,
    which saves one backward pass.

    Args:
        probabilities: p, shape (examples, classes).
        columns: how many of the first columns, at most classes - 1; None for all.

    Returns:
        The columns, shape (columns, examples, classes).
    """
    count = probabilities.shape[1] - 1 if columns is None else columns
    tail = probabilities.flip(1).cumsum(1).flip(1)
    here, after = tail[:, :count], tail[:, 1 : count + 1]
    length = (_ratio(probabilities[:, :count], here) * after).sqrt()
    below = _ratio(probabilities[:, None, :], after[:, :, None]).triu(1)
    root = -below * length[:, :, None]
    root.diagonal(dim1=1, dim2=2).copy_(length)
    return root.transpose(0, 1)


def leading_root(probabilities: Tensor, columns: int) -> Tensor:
    """The first columns of the root, with each example's classes in falling order of probability.

    Args:
        probabilities: p, shape (examples, classes).
        columns: at most classes - 1.

    Returns:
        The columns in the original order of the classes, shape (columns, examples, classes).
    """
    ordered, order = falling(probabilities)
    root = categorical_root(ordered, columns)
    return torch.empty_like(root).scatter_(2, order.expand_as(root), root)


def drawn_directions(probabilities: Tensor, columns: int, noise: Tensor) -> Tensor:
    """Draw directions v that stand for the columns after the leading ones: E sum v v^T is what the leading ones leave.

    Let t be the mass of the remaining classes. What is left is t times the covariance of a class drawn among them.

    Args:
        probabilities: p, shape (examples, classes).
        columns: how many leading columns are kept, at most classes - 2.
        noise: uniform numbers, shape (examples, samples).

    Returns:
        sqrt(t / samples) (q - e_y), shape (samples, examples, classes); q holds the probabilities among the remaining
        classes, and y is drawn from them.
    """
    ordered, order = falling(probabilities)
    mass = ordered[:, columns:].sum(1)
    among = _ratio(ordered[:, columns:], mass[:, None])
    scale = (mass / noise.shape[1]).sqrt()
    directions = probabilities.new_zeros(noise.shape[1], *probabilities.shape)
    directions[:, :, columns:] = scale[:, None] * _residuals(among, _draw_classes(among, noise)).transpose(0, 1)
    return torch.empty_like(directions).scatter_(2, order.expand_as(directions), directions)


def falling(probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Sort each example's classes by falling probability: the probabilities, and the classes they belong to."""
    return probabilities.sort(dim=1, descending=True, stable=True)


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    """Divide, where 0 / 0 is 0 because no mass is left to share."""
    return torch.where(whole > 0, part / whole, 0)


def _draw_classes(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """Draw classes of shape (examples, samples) by inverting the distribution function."""
    cumulative = probabilities.double().cumsum(1)
    # The draw is scaled by the rounded total: a draw near 1 must not land after the last class.
    drawn = torch.searchsorted(cumulative, uniform.to(cumulative) * cumulative[:, -1:], right=True)
    return drawn.clamp_(max=probabilities.shape[1] - 1)


def _residuals(probabilities: Tensor, classes: Tensor) -> Tensor:
    """p - e_y for classes y of shape (examples, samples); 1 - p_y is the sum of the others, without cancellation."""
    residuals = probabilities[:, None, :].repeat(1, classes.shape[1], 1)
    residuals.scatter_(2, classes[:, :, None], 0.0)
    return residuals.scatter_(2, classes[:, :, None], -residuals.sum(2, keepdim=True))
