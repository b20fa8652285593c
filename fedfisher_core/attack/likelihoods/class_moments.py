"""What generated images of a class say against the mean and the leading directions of a client's inputs of it."""

import torch

from fedfisher_core.attack.evidence import Evidence, Knowledge, evidence_for
from fedfisher_core.attack.likelihoods.input_moments import MomentsEvidence, Spread
from fedfisher_core.client.class_moments import ClassMoments
from fedfisher_core.client.statistic import ServerView
from fedfisher_core.errors import InputError


@evidence_for(
    ClassMoments,
    cases={ServerView.EACH: "the client's moments of each class"},
    compressed={ServerView.EACH: "the client's moments of each class, compressed"},
)
def class_moments(statistic: ClassMoments, knowledge: Knowledge) -> Evidence:
    """Judge images of the target by its mean and covariance; those of other classes say nothing of them.

    Args:
        statistic: as the server received it.
        knowledge: the target; the network plays no part.

    Returns:
        The evidence.

    Raises:
        InputError: the client holds no two examples of the target.
    """
    shares, means, directions, owners, deviations = (
        statistic.tensors[name] for name in ("shares", "means", "directions", "owners", "deviations")
    )
    share = shares[knowledge.target]
    if share <= 0:
        raise InputError(f"statistic {statistic.name!r} says nothing of class {knowledge.target}, the target")
    own = directions[owners == knowledge.target] / torch.sqrt(share)
    return MomentsEvidence(means[knowledge.target], Spread(own, deviations.square()))
