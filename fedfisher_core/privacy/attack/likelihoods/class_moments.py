"""How far generated images of a class are from the mean and the leading directions of a client's inputs of it."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedfisher_core.client.statistics.class_moments import ClassMoments
from fedfisher_core.client.statistics.principal import LowFrequencies
from fedfisher_core.client.statistics.statistic import ServerView
from fedfisher_core.engine.errors import InputError
from fedfisher_core.privacy.attack.evidence import Evidence, Knowledge, evidence_for
from fedfisher_core.privacy.attack.likelihoods.input_moments import MomentsEvidence, Spread


@dataclass(frozen=True)
class LowEvidence:
    """Squared differences of the moments of low frequencies."""

    low: LowFrequencies
    moments: MomentsEvidence

    def loss(self, network: nn.Module, images: Tensor) -> Tensor:
        """See `Evidence.loss`."""
        kept = self.low.keep(images.flatten(2).flatten(0, 1))
        return self.moments.loss(network, kept.unflatten(0, images.shape[:2]))

    @property
    def size(self) -> float:
        """See `Evidence.size`."""
        return self.moments.size


@evidence_for(
    ClassMoments,
    cases={ServerView.EACH: "the client's moments of each class"},
    compressed={ServerView.EACH: "the client's moments of each class, compressed"},
)
def class_moments(statistic: ClassMoments, knowledge: Knowledge) -> Evidence:
    """Judge images of the target by the mean and covariance of this class.

    Moments of other classes say nothing of them. Residuals are of all classes together, and are not compared.

    Raises:
        InputError: the client holds fewer than two examples of the target.
    """
    shares, means, directions, owners, deviations = (
        statistic.tensors[name] for name in ("shares", "means", "directions", "owners", "deviations")
    )
    share = shares[knowledge.target]
    if share <= 0:
        raise InputError(f"statistic {statistic.name!r} says nothing of class {knowledge.target}, the target")
    own = directions[owners == knowledge.target] / torch.sqrt(share)
    low = LowFrequencies.of_size(knowledge.auxiliary.shape[1:], len(deviations))
    return LowEvidence(low, MomentsEvidence(means[knowledge.target], Spread(own, deviations.square())))
