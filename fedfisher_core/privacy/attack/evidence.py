"""How far the statistic of generated images is from one that the server received."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from torch import Tensor, nn

import fedfisher_core.privacy.attack.likelihoods
from fedfisher_core.client.statistics.statistic import ServerView, Statistic
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.registry import Registry, import_submodules
from fedfisher_core.fisher.estimators import Estimator, Exact
from fedfisher_core.privacy.attack.factors import Factors
from fedfisher_core.privacy.release import Release

S = TypeVar("S", bound=Statistic)

EXACT = Exact()


class Evidence(Protocol):
    """Judges generated images by a statistic."""

    def loss(self, network: nn.Module, images: Tensor) -> Tensor:
        """The squared difference of the images' statistic and the given one, summed over all elements.

        Args:
            network: what the server attacks, in evaluation mode.
            images: as the network takes them, shape (restarts, images, channels, height, width).

        Returns:
            One loss for each restart, shape (restarts,); with a graph if the images have one.
        """
        ...

    @property
    def size(self) -> float:
        """The given statistic, squared and summed over all elements: the scale of the loss."""
        ...


@dataclass(frozen=True)
class Together:
    """Several statistics, each in units of its size, so that all count equally.

    Args:
        parts: evidence of each; empty where only the network is known.
    """

    parts: tuple[Evidence, ...] = ()

    def loss(self, network: nn.Module, images: Tensor) -> Tensor:
        """See `Evidence.loss`; the sum of the parts, 0 without any."""
        return sum((one.loss(network, images) / one.size for one in self.parts), start=images.new_zeros(len(images)))

    @property
    def size(self) -> float:
        """See `Evidence.size`; 1, as each part is in units of its size."""
        return 1.0


@dataclass(frozen=True)
class Knowledge:
    """What the attacker knows besides the statistic.

    Args:
        auxiliary: its own images, as the network takes them, shape (images, channels, height, width).
        share: p_1, the attacked client's share of all examples.
        release: None where the statistics were not released with differential privacy.
    """

    network: nn.Module
    auxiliary: Tensor
    share: float
    target: int
    estimator: Estimator = EXACT
    release: Release | None = None
    factors: Factors = Factors.ALL


@dataclass(frozen=True)
class Likelihood:
    """What an attacker makes of a statistic.

    Args:
        cases: its name in the attacker's case, for each view of the server's on which there is an attack.
        compressed: its name where it arrives shortened, for views where this is a separate case.
        evidence: made of the statistic and what else is known; None for one that says nothing of images.
    """

    cases: Mapping[ServerView, str] = field(default_factory=dict)
    compressed: Mapping[ServerView, str] = field(default_factory=dict)
    evidence: Callable[[Any, Knowledge], Evidence] | None = None


def evidence_for(
    statistic: type[S], *, cases: Mapping[ServerView, str], compressed: Mapping[ServerView, str] | None = None
) -> Callable[[Callable[[S, Knowledge], Evidence]], Callable[[S, Knowledge], Evidence]]:
    """Register a function that makes evidence of a statistic; `cases` and `compressed` are those of `Likelihood`.

    Returns:
        A decorator that leaves the function as it is. It raises InputError where the statistic has evidence already.
    """

    def register(function: Callable[[S, Knowledge], Evidence]) -> Callable[[S, Knowledge], Evidence]:
        likelihoods.add(statistic.name, Likelihood(cases, compressed or {}, function))
        return function

    return register


def evidence_of_all(statistics: Iterable[Statistic], knowledge: Knowledge) -> Evidence:
    """Make evidence of all statistics that the server received besides a network; for errors see `evidence_of`."""
    return Together(tuple(evidence_of(one, knowledge) for one in statistics))


def evidence_of(statistic: Statistic, knowledge: Knowledge) -> Evidence:
    """Make evidence of a statistic that the server received.

    Args:
        statistic: the attacked client's own where the server sees each, and the sum over clients, weighted by their
            shares of the examples, where it sees the sum.

    Raises:
        InputError: no evidence is defined for the statistic or the estimator, the share is not one, or the statistic
            is of another network or says nothing, as all of it is 0.
        UnsupportedLayerError: the network has a layer without Fisher block.
    """
    known = {name: likelihoods.get(name).evidence for name in likelihoods}
    make = known.get(statistic.name)
    if make is None:
        allowed = ", ".join(repr(name) for name, evidence in known.items() if evidence is not None)
        raise InputError(f"statistic {statistic.name!r}: no attack uses it as evidence; allowed: {allowed}, or none")
    evidence = make(statistic, knowledge)
    if evidence.size == 0:
        raise InputError(f"statistic {statistic.name!r} leaves 0 for the attacked client; allowed: anything else")
    return evidence


def squared_size(tensors: Iterable[Tensor]) -> float:
    """Square and add up all elements, in double precision."""
    return sum(tensor.double().square().sum().item() for tensor in tensors)


def require_names(statistic: str, given: Mapping[str, Any], names: list[str]) -> None:
    """Refuse, by an InputError, a statistic whose layers or parameters are not those of the attacked network."""
    if set(given) != set(names):
        raise InputError(
            f"statistic {statistic!r} holds {', '.join(given)}; allowed for the attacked network: {', '.join(names)}"
        )


likelihoods: Registry[Likelihood] = Registry(
    noun="likelihood",
    group="fedfisher.likelihoods",
    builtin=lambda: import_submodules(fedfisher_core.privacy.attack.likelihoods),
)
"""By the name of a statistic."""
