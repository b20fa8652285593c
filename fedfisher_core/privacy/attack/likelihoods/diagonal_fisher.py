"""Evidence by the sum of all clients' diagonal Fishers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedfisher_core.client.statistics.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.statistics.statistic import ServerView
from fedfisher_core.engine.computed_once import computed_once
from fedfisher_core.engine.errors import InputError
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.engine import MEMORY_LIMIT, compute_fisher
from fedfisher_core.fisher.layers import to_matrix
from fedfisher_core.privacy.attack.evidence import Knowledge, evidence_for, require_names, squared_size
from fedfisher_core.privacy.attack.likelihoods.fishers import require_expected
from fedfisher_core.privacy.attack.statistics import diagonal_of
from fedfisher_core.privacy.fishers import private_fisher
from fedfisher_core.privacy.release import Release

_DIAGONAL = frozenset({Approximation.DIAGONAL})


@dataclass(frozen=True)
class DiagonalEvidence:
    """The sum over clients of diagonal Fishers, of which the attacker estimates all but one client's share.

    The model of the sum is p_1 F(generated) + (1 - p_1) F(auxiliary), both at the attacked network. With differential
    privacy, an F is the mean of what each image adds after the clip, and the elements are compared with their
    expectation after noise and the cut at 0. All elements have the same noise, so that none weighs more than others.

    Args:
        part: what is left for the attacked client, sum_i p_i diag F_i - (1 - p_1) diag F(auxiliary), by parameter.
        share: p_1, the attacked client's share of all examples.
        clip: largest L2 norm of an image's squared derivatives.
        deviation: of the noise on an element of the attacked client's F.
    """

    part: Mapping[str, Tensor]
    share: float
    clip: float = math.inf
    deviation: float = 0.0

    def loss(self, network: nn.Module, images: Tensor) -> Tensor:
        """See `Evidence.loss`."""
        distances = []
        for layer, generated in diagonal_of(network, images, clip=self.clip).items():
            difference = self.share * rectified_mean(generated, self.deviation) - to_matrix(self.part, layer)
            distances.append(difference.square().sum((1, 2)))
        return torch.stack(distances).sum(0)

    @computed_once
    def size(self) -> float:
        """See `Evidence.size`."""
        return squared_size(self.part.values())


@evidence_for(DiagonalFisher, cases={ServerView.SUM: "sum of diagonal Fishers"})
def diagonal_evidence(statistic: DiagonalFisher, knowledge: Knowledge) -> DiagonalEvidence:
    """Estimate the other clients' part from the auxiliary images.

    Args:
        statistic: the sum over clients, weighted by their shares of the examples.

    Raises:
        InputError: the share is not one, or the statistic is of another network or of the empirical estimator.
        UnsupportedLayerError: the network has a layer without Fisher block.
    """
    require_expected(DiagonalFisher, knowledge)
    if not 0 < knowledge.share <= 1:
        raise InputError(f"share={knowledge.share}: a client's share of the examples; allowed: above 0, at most 1")
    release = knowledge.release
    others = _others(knowledge) if release is None else _released_others(knowledge, release)
    require_names(statistic.name, statistic.tensors, list(others))
    part = {name: total - others[name] for name, total in statistic.tensors.items()}
    if release is None:
        return DiagonalEvidence(part, knowledge.share)
    clip = release.settings.diagonal_clip
    return DiagonalEvidence(part, knowledge.share, clip, release.multiplier * clip / release.num_examples[0])


def rectified_mean(mean: Tensor, deviation: float) -> Tensor:
    """The expectation of max(x, 0) where x is normal, with a mean that is not negative.

    It is mean Phi(mean / deviation) + deviation phi(mean / deviation), and the mean where the deviation is 0.
    """
    if deviation == 0:
        return mean
    ratio = mean / deviation
    density = (-ratio.square() / 2).exp() / math.sqrt(2 * math.pi)
    return mean * torch.special.ndtr(ratio) + deviation * density


def _others(knowledge: Knowledge) -> dict[str, Tensor]:
    """Expectation of the other clients' part of the sum."""
    fisher = compute_fisher(knowledge.network, knowledge.auxiliary, approximations=_DIAGONAL).diagonal
    assert fisher is not None
    return {name: (1 - knowledge.share) * tensor for name, tensor in fisher.items()}


def _released_others(knowledge: Knowledge, release: Release) -> dict[str, Tensor]:
    """Expectation of the other clients' part of the sum where each clips, adds noise and cuts off at 0."""
    clipped = private_fisher(
        knowledge.network,
        knowledge.auxiliary,
        release.settings,
        approximations=_DIAGONAL,
        noise_multiplier=0.0,
        memory_limit=MEMORY_LIMIT,
        generator=torch.Generator(),
    ).diagonal
    assert clipped is not None
    total, scale = sum(release.num_examples), release.multiplier * release.settings.diagonal_clip
    found = {name: torch.zeros_like(tensor) for name, tensor in clipped.items()}
    for count in release.num_examples[1:]:
        for name, tensor in clipped.items():
            found[name] += count / total * rectified_mean(tensor, scale / count)
    return found
