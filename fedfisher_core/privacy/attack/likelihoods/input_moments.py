"""How far generated images are from the mean and the leading directions of a client's inputs."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedfisher_core.client.statistics.input_moments import InputMoments
from fedfisher_core.client.statistics.statistic import ServerView
from fedfisher_core.engine.computed_once import computed_once
from fedfisher_core.privacy.attack.evidence import Evidence, Knowledge, evidence_for
from fedfisher_core.privacy.release import input_moments_clips


@dataclass(frozen=True)
class Spread:
    """A matrix D^T D + diag(v) in few numbers.

    Args:
        directions: D, shape (directions, inputs).
        variances: v, shape (inputs,).
    """

    directions: Tensor
    variances: Tensor

    def squared_distance(self, vectors: Tensor) -> Tensor:
        """Sum of squared differences from V^T V, for each set, shape (sets,).

        Args:
            vectors: V, shape (sets, vectors, inputs).
        """
        # It multiplies vectors and directions, which are fewer than the numbers of an input.
        own = (vectors @ vectors.mT).square().sum((1, 2))
        shared = (vectors @ self.directions.T).square().sum((1, 2)) + vectors.square().sum(1) @ self.variances
        return own - 2 * shared + self.extent

    @computed_once
    def extent(self) -> Tensor:
        """The sum of the squares of the elements."""
        lengths = self.directions.square().sum(0)
        gram = self.directions @ self.directions.T
        return gram.square().sum() + (2 * lengths + self.variances) @ self.variances


@dataclass(frozen=True)
class MomentsEvidence:
    """Squared differences of the means, shape (inputs,), and of the covariances."""

    mean: Tensor
    covariance: Spread

    def loss(self, network: nn.Module, images: Tensor) -> Tensor:
        """See `Evidence.loss`."""
        inputs = images.flatten(2)
        means = inputs.mean(1)
        centred = (inputs - means[:, None]) / inputs.shape[1] ** 0.5
        return (means - self.mean).square().sum(1) + self.covariance.squared_distance(centred)

    @computed_once
    def size(self) -> float:
        """See `Evidence.size`."""
        return (self.mean.square().sum() + self.covariance.extent).item()


@dataclass(frozen=True)
class ReleasedEvidence:
    """Squared differences of the means of x and of x x^T, which are what was released with differential privacy.

    Images are clipped as the client's were. Each difference is in units of the noise, whose deviation is the same for
    all elements of x, and for all elements of x x^T (counted once). That the client kept few directions, and no
    negative variance along them, is not modelled.

    Args:
        mean: of the client's inputs, shape (inputs,).
        moments: C + mean mean^T with the covariance C that was sent.
        clips: largest norms of x and of x x^T, to which the deviations are in proportion.
    """

    mean: Tensor
    moments: Spread
    clips: tuple[float, float]

    def loss(self, network: nn.Module, images: Tensor) -> Tensor:
        """See `Evidence.loss`."""
        radius, square = self.clips
        inputs = images.flatten(2)
        # A number of at least 1 has a root with a finite gradient, a length may not.
        shortened = inputs * (inputs.square().sum(2, keepdim=True) / square).clamp(min=1).rsqrt()
        first = (shortened.mean(1) - self.mean).square().sum(1)
        second = self.moments.squared_distance(shortened / inputs.shape[1] ** 0.5)
        return first / radius**2 + second / square**2

    @computed_once
    def size(self) -> float:
        """See `Evidence.size`."""
        radius, square = self.clips
        return (self.mean.square().sum() / radius**2 + self.moments.extent / square**2).item()


@evidence_for(
    InputMoments,
    cases={ServerView.EACH: "the client's input moments"},
    compressed={ServerView.EACH: "the client's input moments, compressed"},
)
def input_moments(statistic: InputMoments, knowledge: Knowledge) -> Evidence:
    """Judge images by mean and covariance; the network plays no part."""
    mean, directions, deviations = (statistic.tensors[name] for name in ("mean", "directions", "deviations"))
    variances = deviations.square()
    if knowledge.release is None:
        return MomentsEvidence(mean, Spread(directions, variances))
    clips = input_moments_clips(knowledge.release.settings, inputs=len(mean))
    return ReleasedEvidence(mean, Spread(torch.cat([directions, mean[None]]), variances), clips)
