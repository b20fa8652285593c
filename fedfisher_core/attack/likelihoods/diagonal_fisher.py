"""Evidence by the sum of all clients' diagonal Fishers."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from fedfisher_core.attack.evidence import Knowledge, evidence_for, require_names, squared_size
from fedfisher_core.attack.likelihoods.fishers import require_expected
from fedfisher_core.attack.statistics import diagonal_of
from fedfisher_core.client.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.statistic import ServerView
from fedfisher_core.errors import InputError
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.engine import compute_fisher
from fedfisher_core.fisher.layers import to_matrix


@dataclass(frozen=True)
class DiagonalEvidence:
    """The sum over clients of diagonal Fishers, of which the attacker estimates all but one client's share.

    The model of the sum is p_1 F(generated) + (1 - p_1) F(auxiliary), both at the attacked network.

    Args:
        part: what is left for the attacked client, sum_i p_i diag F_i - (1 - p_1) diag F(auxiliary), by parameter.
        share: p_1, the attacked client's share of all examples.
    """

    part: Mapping[str, Tensor]
    share: float

    def loss(self, network: nn.Module, images: Tensor) -> Tensor:
        """See `Evidence.loss`."""
        distances = []
        for layer, generated in diagonal_of(network, images).items():
            difference = self.share * generated - to_matrix(self.part, layer)
            distances.append(difference.square().sum((1, 2)))
        return torch.stack(distances).sum(0)

    @cached_property
    def size(self) -> float:
        """See `Evidence.size`."""
        return squared_size(self.part.values())


@evidence_for(DiagonalFisher, cases={ServerView.SUM: "sum of diagonal Fishers"})
def diagonal_evidence(statistic: DiagonalFisher, knowledge: Knowledge) -> DiagonalEvidence:
    """Estimate the other clients' part from the auxiliary images.

    Args:
        statistic: the sum over clients, weighted by their shares of the examples.
        knowledge: the attacked network, the auxiliary images, the attacked client's share, and the estimator.

    Returns:
        The evidence.

    Raises:
        InputError: the share is not one, or the statistic is of another network or of the empirical estimator.
        UnsupportedLayerError: the network has a layer without Fisher block.
    """
    require_expected(DiagonalFisher, knowledge)
    if not 0 < knowledge.share <= 1:
        raise InputError(f"share={knowledge.share}: a client's share of the examples; allowed: above 0, at most 1")
    fisher = compute_fisher(
        knowledge.network, knowledge.auxiliary, approximations=frozenset({Approximation.DIAGONAL})
    ).diagonal
    assert fisher is not None
    require_names(statistic.name, statistic.tensors, list(fisher))
    part = {name: total - (1 - knowledge.share) * fisher[name] for name, total in statistic.tensors.items()}
    return DiagonalEvidence(part, knowledge.share)
