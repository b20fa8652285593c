"""Evidence by the Kronecker factors of one client."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.statistic import ServerView
from fedfisher_core.engine.computed_once import computed_once
from fedfisher_core.engine.errors import InputError
from fedfisher_core.fisher.estimators import nominal_directions
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.fisher.layers import matrix_layers
from fedfisher_core.privacy.attack.evidence import EXACT, Knowledge, evidence_for, require_names, squared_size
from fedfisher_core.privacy.attack.factors import Factors
from fedfisher_core.privacy.attack.likelihoods.fishers import require_expected
from fedfisher_core.privacy.attack.statistics import KroneckerMoments, Moment, kfac_of
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
        """The weighted squared difference from the factors of sets of images, shape (sets,)."""
        shown = generated if math.isinf(self.clip) else generated.clipped(self.clip)
        return self.weight * shown.squared_distance(self.received)

    @property
    def size(self) -> float:
        """The received matrix, squared, summed over all elements and weighted."""
        return self.weight * squared_size([self.received])


@dataclass(frozen=True)
class KfacEvidence:
    """The Kronecker factors that one client sent (FedFisher, appendix E).

    With differential privacy, images are clipped as the client's were, and each factor is compared in units of its
    noise, whose deviation is the same for all elements of a factor (counted once) but not for all factors. That the
    client set negative eigenvalues to 0 is not modelled.

    Args:
        factors: by layer, that of the inputs and that of the gradients at the outputs; None for one that is not
            compared.
    """

    factors: Mapping[str, tuple[Factor | None, Factor | None]]

    def loss(self, network: nn.Module, images: Tensor) -> Tensor:
        """See `Evidence.loss`."""
        moments = kfac_of(network, images)
        require_names(KFAC.name, self.factors, list(moments))
        distances = []
        for layer, generated in moments.items():
            for factor, moment in zip(self.factors[layer], (generated.inputs, generated.outputs), strict=True):
                if factor is not None:
                    distances.append(factor.distance(moment))
        return torch.stack(distances).sum(0)

    @computed_once
    def size(self) -> float:
        """See `Evidence.size`."""
        return sum(one.size for pair in self.factors.values() for one in pair if one is not None)


@evidence_for(
    KFAC,
    cases={ServerView.EACH: "the client's K-FAC"},
    compressed={ServerView.EACH: "the client's K-FAC, compressed"},
)
def kfac_evidence(statistic: KFAC, knowledge: Knowledge) -> KfacEvidence:
    """Bring the factors, whose scale depends on the estimator, to that of the exact one, and choose among them.

    Where each factor is in units of its squared size, units of noise would cancel. With differential privacy the
    clips are modelled then, but a factor that is mostly noise counts as much as any other.

    Raises:
        InputError: the statistic is of another network, or of the empirical estimator; the network has no factor of
            this choice; or a factor that is to be divided by its size is 0.
        UnsupportedLayerError: the network has a layer without Fisher block.
    """
    require_expected(KFAC, knowledge)
    layers = list(matrix_layers(knowledge.network))
    require_names(statistic.name, statistic.factors, layers)
    outputs = statistic.factors[layers[-1]].outputs.shape[0]
    ratio = (nominal_directions(EXACT, outputs) / nominal_directions(knowledge.estimator, outputs)) ** 0.5
    received = {layer: Kronecker(one.inputs * ratio, one.outputs / ratio) for layer, one in statistic.factors.items()}
    with torch.no_grad():
        image = kfac_of(knowledge.network, knowledge.auxiliary[None, :1])
    knowledge.factors.require_layers(len(image))
    order, factors = list(image), {}
    for layer, one in received.items():
        pair = (Factor(one.inputs), Factor(one.outputs))
        if knowledge.release is not None:
            pair = _released(one, image[layer], knowledge.release.settings)
        factors[layer] = _chosen(pair, knowledge.factors, layer=layer, number=order.index(layer))
    return KfacEvidence(factors)


def _chosen(
    pair: tuple[Factor, Factor], factors: Factors, *, layer: str, number: int
) -> tuple[Factor | None, Factor | None]:
    """Weight the factors of a layer that are compared; None for one that is not.

    Args:
        layer: its name, for the message.
        number: of the layer, from 0.

    Raises:
        InputError: a factor that is to be divided by its size is 0.
    """
    inputs, outputs = (
        _in_units_of_itself(factor, f"{layer}.{side}") if factors is Factors.RELATIVE else factor
        for factor, side in zip(pair, ("inputs", "outputs"), strict=True)
    )
    return (
        inputs if factors.compares(layer=number, outputs=False) else None,
        outputs if factors.compares(layer=number, outputs=True) else None,
    )


def _in_units_of_itself(factor: Factor, name: str) -> Factor:
    size = squared_size([factor.received])
    if size == 0:
        raise InputError(
            f"statistic {KFAC.name!r}: factor {name!r} is 0, and inversion.factors={Factors.RELATIVE.value!r} divides "
            f"by its size; allowed: any other factor, or another choice"
        )
    return replace(factor, weight=1 / size)


def _released(received: Kronecker, image: KroneckerMoments, settings: PrivacySettings) -> tuple[Factor, Factor]:
    """Add to a layer's factors how they were released.

    All deviations are in proportion to the multiplier and to n_i, which cancel in units of the size.

    Args:
        image: the factors of any one image, for their sizes.
        settings: the clips.
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
