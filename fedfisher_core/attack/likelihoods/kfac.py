"""Evidence by the Kronecker factors of one client."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from fedfisher_core.attack.evidence import EXACT, Knowledge, evidence_for, require_names, squared_size
from fedfisher_core.attack.likelihoods.fishers import require_expected
from fedfisher_core.attack.statistics import kfac_of
from fedfisher_core.client.kfac import KFAC
from fedfisher_core.client.statistic import ServerView
from fedfisher_core.fisher.estimators import nominal_directions
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.fisher.layers import fisher_layers


@dataclass(frozen=True)
class KfacEvidence:
    """The Kronecker factors that one client sent (FedFisher, appendix E).

    Args:
        factors: by layer, in the scale of the exact estimator.
    """

    factors: Mapping[str, Kronecker]

    def loss(self, network: nn.Module, images: Tensor) -> Tensor:
        """See `Evidence.loss`."""
        moments = kfac_of(network, images)
        require_names(KFAC.name, self.factors, list(moments))
        distances = []
        for layer, generated in moments.items():
            distances.append(generated.inputs.squared_distance(self.factors[layer].inputs))
            distances.append(generated.outputs.squared_distance(self.factors[layer].outputs))
        return torch.stack(distances).sum(0)

    @cached_property
    def size(self) -> float:
        """See `Evidence.size`."""
        return squared_size(side for one in self.factors.values() for side in (one.inputs, one.outputs))


@evidence_for(
    KFAC,
    cases={ServerView.EACH: "the client's K-FAC"},
    compressed={ServerView.EACH: "the client's K-FAC, compressed"},
)
def kfac_evidence(statistic: KFAC, knowledge: Knowledge) -> KfacEvidence:
    """Bring the factors, whose scale depends on the estimator, to that of the exact one.

    Args:
        statistic: of the attacked client.
        knowledge: the attacked network, and the estimator.

    Returns:
        The evidence.

    Raises:
        InputError: the statistic is of another network, or of the empirical estimator.
        UnsupportedLayerError: the network has a layer without Fisher block.
    """
    require_expected(KFAC, knowledge)
    layers = list(fisher_layers(knowledge.network))
    require_names(statistic.name, statistic.factors, layers)
    outputs = statistic.factors[layers[-1]].outputs.shape[0]
    ratio = (nominal_directions(EXACT, outputs) / nominal_directions(knowledge.estimator, outputs)) ** 0.5
    return KfacEvidence(
        {layer: Kronecker(one.inputs * ratio, one.outputs / ratio) for layer, one in statistic.factors.items()}
    )
