"""What generated images say against the mean and the leading directions of a client's inputs."""

from dataclasses import dataclass

from torch import Tensor, nn

from fedfisher_core.attack.evidence import Knowledge, evidence_for
from fedfisher_core.client.input_moments import InputMoments
from fedfisher_core.client.statistic import ServerView


@dataclass(frozen=True)
class MomentsEvidence:
    """Squared differences of the means, and of the covariances C = D^T D + diag(v) that the moments stand for.

    Args:
        mean: of the client's inputs, shape (inputs,).
        directions: D, shape (directions, inputs).
        variances: v, shape (inputs,).
    """

    mean: Tensor
    directions: Tensor
    variances: Tensor

    def loss(self, network: nn.Module, images: Tensor) -> Tensor:
        """See `Evidence.loss`."""
        inputs = images.flatten(2)
        means = inputs.mean(1)
        # |S - C|^2 by products of examples and directions, which are fewer than the numbers of an input.
        centred = (inputs - means[:, None]) / inputs.shape[1] ** 0.5
        own = (centred @ centred.mT).square().sum((1, 2))
        shared = (centred @ self.directions.T).square().sum((1, 2)) + centred.square().sum(1) @ self.variances
        return (means - self.mean).square().sum(1) + own - 2 * shared + self._extent

    @property
    def size(self) -> float:
        """See `Evidence.size`."""
        return (self.mean.square().sum() + self._extent).item()

    @property
    def _extent(self) -> Tensor:
        """|C|^2."""
        lengths = self.directions.square().sum(0)
        gram = self.directions @ self.directions.T
        return gram.square().sum() + (2 * lengths + self.variances) @ self.variances


@evidence_for(
    InputMoments,
    cases={ServerView.EACH: "the client's input moments"},
    compressed={ServerView.EACH: "the client's input moments, compressed"},
)
def input_moments(statistic: InputMoments, knowledge: Knowledge) -> MomentsEvidence:
    """Judge images by mean and covariance.

    Args:
        statistic: as the server received it.
        knowledge: not needed; the network plays no part.

    Returns:
        The evidence.
    """
    mean, directions, deviations = (statistic.tensors[name] for name in ("mean", "directions", "deviations"))
    return MomentsEvidence(mean, directions, deviations.square())
