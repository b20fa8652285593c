"""What a statistic that the server received says of generated images: how far theirs is from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor, nn

from fedfisher_core.attack.statistics import diagonal_of, kfac_of
from fedfisher_core.client.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.kfac import KFAC
from fedfisher_core.client.statistic import Statistic
from fedfisher_core.errors import InputError
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.engine import compute_fisher
from fedfisher_core.fisher.estimators import Empirical, Estimator, Exact, nominal_directions
from fedfisher_core.fisher.layers import fisher_layers, to_matrix

EXACT = Exact()


class Evidence(Protocol):
    """Judges generated images by a statistic."""

    def loss(self, network: nn.Module, images: Tensor) -> Tensor:
        """Measure how badly images fit.

        Args:
            network: what the server attacks, in evaluation mode.
            images: as the network takes them, shape (restarts, images, channels, height, width).

        Returns:
            The squared difference of their statistic and the given one, summed over all elements, for each restart,
            shape (restarts,); with a graph if the images have one.
        """
        ...

    @property
    def size(self) -> float:
        """What is given, squared and summed over all elements: the scale of the loss."""
        ...


@dataclass(frozen=True)
class NoEvidence:
    """Nothing but the network is known."""

    def loss(self, network: nn.Module, images: Tensor) -> Tensor:
        """See `Evidence.loss`; always 0."""
        return images.new_zeros(len(images))

    @property
    def size(self) -> float:
        """See `Evidence.size`; 1, as nothing is given."""
        return 1.0


@dataclass(frozen=True)
class KfacEvidence:
    """The Kronecker factors that one client sent (FedFisher, appendix E).

    Args:
        factors: named as the statistic "kfac", in the scale of the exact estimator.
    """

    factors: Mapping[str, Tensor]

    def loss(self, network: nn.Module, images: Tensor) -> Tensor:
        """See `Evidence.loss`."""
        moments = kfac_of(network, images)
        _require_names("kfac", self.factors, list(moments))
        distances = [moment.squared_distance(self.factors[name]) for name, moment in moments.items()]
        return torch.stack(distances).sum(0)

    @cached_property
    def size(self) -> float:
        """See `Evidence.size`."""
        return _squared_size(self.factors)


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
        return _squared_size(self.part)


@dataclass(frozen=True)
class Knowledge:
    """What the attacker knows beside the statistic.

    Args:
        network: what it attacks.
        auxiliary: its own images, as the network takes them, shape (images, channels, height, width).
        share: p_1, the attacked client's share of all examples.
        estimator: of the clients' Fishers.
    """

    network: nn.Module
    auxiliary: Tensor
    share: float
    estimator: Estimator = EXACT


def evidence_of(statistic: Statistic | None, knowledge: Knowledge) -> Evidence:
    """Make evidence of what the server received.

    Args:
        statistic: None for nothing; the attacked client's own where the server sees each, and the sum over clients,
            weighted by their shares of the examples, where it sees the sum.
        knowledge: what else the attacker knows.

    Returns:
        The evidence.

    Raises:
        InputError: no evidence is defined for the statistic or the estimator, the share is not one, or the statistic
            is of another network or says nothing, as all of it is 0.
        UnsupportedLayerError: the network has a layer without Fisher block.
    """
    if statistic is None:
        return NoEvidence()
    if not isinstance(statistic, KFAC | DiagonalFisher):
        raise InputError(
            f"statistic {statistic.name!r}: no attack uses it as evidence; allowed: {KFAC.name!r}, "
            f"{DiagonalFisher.name!r}, or none"
        )
    if isinstance(knowledge.estimator, Empirical):
        raise InputError(
            f"statistic {statistic.name!r}: the estimator 'empirical' needs the labels of generated images, which have "
            f"none; allowed: 'exact', 'monte_carlo'"
        )
    evidence = (
        _kfac_evidence(statistic, knowledge)
        if isinstance(statistic, KFAC)
        else _diagonal_evidence(statistic, knowledge)
    )
    if evidence.size == 0:
        raise InputError(f"statistic {statistic.name!r} leaves 0 for the attacked client; allowed: anything else")
    return evidence


def _kfac_evidence(statistic: KFAC, knowledge: Knowledge) -> KfacEvidence:
    """Bring the factors, whose scale depends on the estimator, to that of the exact one."""
    layers = fisher_layers(knowledge.network)
    _require_names(statistic.name, statistic.tensors, [f"{layer}.{side}" for layer in layers for side in _SIDES])
    outputs = statistic.tensors[f"{list(layers)[-1]}.outputs"].shape[0]
    ratio = (nominal_directions(EXACT, outputs) / nominal_directions(knowledge.estimator, outputs)) ** 0.5
    return KfacEvidence(
        {
            name: tensor * ratio if name.endswith(".inputs") else tensor / ratio
            for name, tensor in statistic.tensors.items()
        }
    )


def _diagonal_evidence(statistic: DiagonalFisher, knowledge: Knowledge) -> DiagonalEvidence:
    """Estimate the other clients' part from the auxiliary images."""
    if not 0 < knowledge.share <= 1:
        raise InputError(f"share={knowledge.share}: a client's share of the examples; allowed: above 0, at most 1")
    fisher = compute_fisher(
        knowledge.network, knowledge.auxiliary, approximations=frozenset({Approximation.DIAGONAL})
    ).diagonal
    assert fisher is not None
    _require_names(statistic.name, statistic.tensors, list(fisher))
    part = {name: total - (1 - knowledge.share) * fisher[name] for name, total in statistic.tensors.items()}
    return DiagonalEvidence(part, knowledge.share)


_SIDES = ("inputs", "outputs")


def _squared_size(tensors: Mapping[str, Tensor]) -> float:
    return sum(tensor.double().square().sum().item() for tensor in tensors.values())


def _require_names(statistic: str, tensors: Mapping[str, Tensor], names: list[str]) -> None:
    """Make sure that a statistic is of the network that is attacked."""
    if set(tensors) != set(names):
        raise InputError(
            f"statistic {statistic!r} holds {', '.join(tensors)}; allowed for the attacked network: {', '.join(names)}"
        )
