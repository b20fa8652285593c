"""Evidence by the Kronecker factors of one client."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedfisher_core.attack.evidence import EXACT, Knowledge, evidence_for, require_names, squared_size
from fedfisher_core.attack.likelihoods.fishers import require_expected
from fedfisher_core.attack.statistics import KroneckerMoments, Moment, kfac_of
from fedfisher_core.client.kfac import KFAC
from fedfisher_core.client.statistic import ServerView
from fedfisher_core.fisher.estimators import nominal_directions
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.fisher.layers import fisher_layers
from fedfisher_core.lazily import computed_once
from fedfisher_core.privacy.release import moment_clips
from fedfisher_core.settings import PrivacySettings


@dataclass(frozen=True)
class Factor:
    """One Kronecker factor as it was received.

    Args:
        received: the matrix, in the scale of the exact estimator.
        clip: largest Frobenius norm of what an image adds, before the scale.
        weight: of the squared difference.
    """

    received: Tensor
    clip: float = math.inf
    weight: float = 1.0

    def distance(self, generated: Moment) -> Tensor:
        """Compare with the factors of sets of images; the weighted squared difference, shape (sets,)."""
        shown = generated if math.isinf(self.clip) else generated.clipped(self.clip)
        return self.weight * shown.squared_distance(self.received)


@dataclass(frozen=True)
class KfacEvidence:
    """The Kronecker factors that one client sent (FedFisher, appendix E).

    With differential privacy, images are clipped as the client's were, and each factor is compared in units of its
    noise, whose deviation is the same for all elements of a factor (counted once) but not for all factors. That the
    client set negative eigenvalues to 0 is not modelled.

    Args:
        factors: by layer, that of the inputs and that of the gradients at the outputs.
    """

    factors: Mapping[str, tuple[Factor, Factor]]

    def loss(self, network: nn.Module, images: Tensor) -> Tensor:
        """See `Evidence.loss`."""
        moments = kfac_of(network, images)
        require_names(KFAC.name, self.factors, list(moments))
        distances = []
        for layer, generated in moments.items():
            inputs, outputs = self.factors[layer]
            distances += [inputs.distance(generated.inputs), outputs.distance(generated.outputs)]
        return torch.stack(distances).sum(0)

    @computed_once
    def size(self) -> float:
        """See `Evidence.size`."""
        return sum(one.weight * squared_size([one.received]) for pair in self.factors.values() for one in pair)


@evidence_for(
    KFAC,
    cases={ServerView.EACH: "the client's K-FAC"},
    compressed={ServerView.EACH: "the client's K-FAC, compressed"},
)
def kfac_evidence(statistic: KFAC, knowledge: Knowledge) -> KfacEvidence:
    """Bring the factors, whose scale depends on the estimator, to that of the exact one.

    Args:
        statistic: of the attacked client.
        knowledge: the attacked network, the estimator, and the release.

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
    received = {layer: Kronecker(one.inputs * ratio, one.outputs / ratio) for layer, one in statistic.factors.items()}
    if knowledge.release is None:
        return KfacEvidence({layer: (Factor(one.inputs), Factor(one.outputs)) for layer, one in received.items()})
    with torch.no_grad():
        moments = kfac_of(knowledge.network, knowledge.auxiliary[None, :1])
    clips = knowledge.release.settings
    return KfacEvidence({layer: _released(one, moments[layer], clips) for layer, one in received.items()})


def _released(received: Kronecker, image: KroneckerMoments, settings: PrivacySettings) -> tuple[Factor, Factor]:
    """Say how a layer's factors were released.

    Args:
        received: the factors.
        image: those of any one image, for their sizes.
        settings: the clips.

    Returns:
        The factors. All deviations are in proportion to the multiplier and to n_i, which cancel in units of the size.
    """
    columns, windows = image.inputs.vectors.shape[-2:]
    clips = moment_clips(settings, windows=windows, columns=columns)
    inputs, outputs = (
        Factor(side, clip, (clip * moment.scale) ** -2)
        for side, clip, moment in zip(
            (received.inputs, received.outputs), clips, (image.inputs, image.outputs), strict=True
        )
    )
    return inputs, outputs
