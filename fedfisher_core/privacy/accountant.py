"""What a client's releases cost, and the noise that keeps within the budget.

A client releases its trained weights (DP-SGD: one Gaussian mechanism a step, on batches that are sampled) and
statistics such as Fishers and input moments (one Gaussian mechanism each, on all its examples). One accountant
composes them by their Renyi divergences (Mironov, Talwar and Zhang 2019, "Renyi differential privacy of the sampled
Gaussian mechanism").

`fedfisher_core.privacy` says which data sets are neighbours, and that the number of examples n_i is public. Clients
hold disjoint examples, so that what each spends isn't added up over clients.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from fedfisher_core.errors import InputError
from fedfisher_core.privacy.library import quieten
from fedfisher_core.settings import PrivacySettings

Mechanism = tuple[float, float, int]
"""Noise multiplier, sampling rate and steps, as Opacus' accountants list them."""

MAX_MULTIPLIER = 1e4
"""Largest noise multiplier; beyond it, only the conversion from Renyi divergences costs anything."""

_TOLERANCE = 1e-3
_LEAST_COST = 1e-12


@dataclass(frozen=True)
class Noise:
    """The noise of a client.

    Args:
        training: noise multiplier of DP-SGD, the deviation of a step's noise as a multiple of the clip.
        release: noise multiplier of each statistic; None where none is released.
        epsilon: what the accountant gives for all that is released.
    """

    training: float
    release: float | None
    epsilon: float


def sampling_rate(num_examples: int, batch_size: int) -> float:
    """Probability by which each example enters a batch; at most 1.

    Args:
        num_examples: of the client.
        batch_size: expected examples of a batch.

    Returns:
        min(batch_size / num_examples, 1).
    """
    return min(batch_size / num_examples, 1.0)


def spent(mechanisms: list[Mechanism], *, delta: float) -> float:
    """Compose mechanisms.

    Args:
        mechanisms: what is released.
        delta: of the guarantee.

    Returns:
        epsilon of the guarantee; not negative.
    """
    # Opacus takes seconds to import.
    from opacus.accountants import RDPAccountant

    quieten()
    accountant = RDPAccountant()
    accountant.history = list(mechanisms)
    return max(0.0, accountant.get_epsilon(delta=delta))


def calibrate(settings: PrivacySettings, *, num_examples: int, batch_size: int, steps: int, releases: int) -> Noise:
    """Find the least noise that keeps a client within its budget.

    A statistic's noise is such that its release alone would cost statistics_share of epsilon; what the composition
    leaves goes to the training.

    Args:
        settings: the budget.
        num_examples: of the client, n_i.
        batch_size: expected examples of a batch; from n_i on, every batch is the whole data set.
        steps: of the training.
        releases: how many noisy statistics the client sends.

    Returns:
        The noise multipliers, the smallest to a relative 0.001.

    Raises:
        InputError: no noise keeps within the budget, or a number is out of range.
    """
    for name, number in (("num_examples", num_examples), ("batch_size", batch_size), ("steps", steps)):
        if number < 1:
            raise InputError(f"{name}={number}; allowed: at least 1")
    if releases < 0:
        raise InputError(f"releases={releases}; allowed: at least 0")
    release = _release_multiplier(settings) if releases else None
    others: list[Mechanism] = [] if release is None else [(release, 1.0, releases)]
    rate = sampling_rate(num_examples, batch_size)

    def cost(multiplier: float) -> float:
        return spent([(multiplier, rate, steps), *others], delta=settings.delta)

    least = cost(MAX_MULTIPLIER)
    if least > settings.epsilon:
        raise InputError(
            f"privacy.epsilon={settings.epsilon:g} with privacy.delta={settings.delta:g}, "
            f"privacy.statistics_share={settings.statistics_share:g} and {releases} noisy statistics: whatever the "
            f"noise of the training, {least:.4g} is spent; allowed: a larger epsilon or a smaller share"
        )
    training = _least_multiplier(cost, settings.epsilon)
    return Noise(training=training, release=release, epsilon=cost(training))


def _release_multiplier(settings: PrivacySettings) -> float:
    """The noise multiplier of a statistic whose release alone costs its share."""

    def cost(multiplier: float) -> float:
        return spent([(multiplier, 1.0, 1)], delta=settings.delta)

    target = settings.statistics_share * settings.epsilon
    least = cost(MAX_MULTIPLIER)
    if least > target:
        raise InputError(
            f"privacy.epsilon={settings.epsilon:g} with privacy.delta={settings.delta:g} and "
            f"privacy.statistics_share={settings.statistics_share:g}; allowed: at least "
            f"{least / settings.statistics_share:.4g}, as no noise makes the release of a statistic cost less than "
            f"{least:.4g}"
        )
    return _least_multiplier(cost, target)


def _least_multiplier(cost: Callable[[float], float], target: float) -> float:
    """Find the smallest noise multiplier that costs at most the target; MAX_MULTIPLIER does."""
    # Plans look at this module without differential privacy as well, and this import takes half a second.
    from scipy.optimize import brentq

    low = high = 1.0
    while cost(low) <= target:
        low, high = low / 2, low
    while cost(high) > target:
        low, high = high, min(2 * high, MAX_MULTIPLIER)

    # On logarithmic scales the cost is nearly straight, which takes few of its expensive evaluations.
    def excess(logarithm: float) -> float:
        return math.log(max(cost(math.exp(logarithm)), _LEAST_COST) / target)

    root = brentq(excess, math.log(low), math.log(high), xtol=_TOLERANCE / 4)
    # On the safe side of the root by more than its error.
    return min(math.exp(root + _TOLERANCE / 2), high)
