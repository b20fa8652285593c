"""What a client's releases cost by Opacus' accountants, and what one run shows: a lower bound from guesses."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fedfisher_core.engine.errors import InputError
from fedfisher_core.settings import PrivacySettings

_IRRELEVANT = (
    # The bound holds for every order. Near the ends of the accountant's list it is only less tight.
    "Optimal order is the (smallest|largest) alpha",
    # Images need no gradient. Only the gradients at a layer's outputs are used.
    "Full backward hook is firing when gradients are computed with respect to module outputs",
)

Mechanism = tuple[float, float, int]
"""Noise multiplier, sampling rate and steps, as Opacus' accountants list them."""
MAX_MULTIPLIER = 1e4
"""Largest noise multiplier; beyond it, only the conversion from Renyi divergences costs anything."""
_TOLERANCE = 1e-3
_LEAST_COST = 1e-12
_ROUNDING = 1e-6
_LARGEST = 100.0
_CONFIDENCE = 0.95
"""Probability with which a bound holds, at least."""


def quieten() -> None:
    """Silence those warnings, and no others, in the whole process: filters that come and go aren't safe in threads."""
    for message in _IRRELEVANT:
        warnings.filterwarnings("ignore", message=message)


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
    """Probability by which each example enters a batch: min(batch_size / num_examples, 1).

    Args:
        batch_size: expected examples of a batch.
    """
    return min(batch_size / num_examples, 1.0)


def spent(mechanisms: list[Mechanism], *, delta: float) -> float:
    """Compose the mechanisms that are released; gives epsilon of the guarantee, not negative."""
    # Opacus takes seconds to import.
    from opacus.accountants import RDPAccountant

    quieten()
    accountant = RDPAccountant()
    accountant.history = list(mechanisms)
    orders = _promising(RDPAccountant.DEFAULT_ALPHAS, mechanisms, delta)
    return max(0.0, accountant.get_epsilon(delta=delta, alphas=orders))


def _promising(orders: Sequence[float], mechanisms: Sequence[Mechanism], delta: float) -> list[float]:
    """Leave out orders of fractions that can't give the smallest epsilon; each would take milliseconds.

    A Renyi divergence grows with its order. An order thus costs at least what the whole one below it does, of which
    Opacus has a fast formula.
    """
    from opacus.accountants.analysis.rdp import compute_rdp

    whole = [order for order in orders if float(order).is_integer()]
    divergences = np.zeros(len(whole))
    for multiplier, rate, steps in mechanisms:
        divergences += compute_rdp(q=rate, noise_multiplier=multiplier, steps=steps, orders=whole)
    at_whole = dict(zip(whole, divergences, strict=True))

    def least(order: float) -> float:
        conversion = math.log((order - 1) / order) - (math.log(delta) + math.log(order)) / (order - 1)
        return float(at_whole.get(math.floor(order), 0.0)) + conversion

    smallest = min(map(least, whole))
    return [order for order in orders if order in at_whole or least(order) <= smallest + _ROUNDING]


def calibrate(settings: PrivacySettings, *, num_examples: int, batch_size: int, steps: int, releases: int) -> Noise:
    """Find the least noise, to a relative 0.001, that keeps a client within its budget.

    A statistic's noise is such that its release alone would cost statistics_share of epsilon; what the composition
    leaves goes to the training.

    Args:
        num_examples: of the client, n_i.
        batch_size: expected examples of a batch; from n_i on, every batch is the whole data set.

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
        given = f"privacy.epsilon={settings.epsilon:g} with privacy.delta={settings.delta:g}"
        if not releases:
            raise InputError(f"{given}; allowed: at least {_up(least)}, as no noise of the training costs less")
        raise InputError(
            f"{given}, privacy.statistics_share={settings.statistics_share:g} and {releases} noisy statistics: with "
            f"any noise of the training, {least:.4g} is spent; allowed: a larger epsilon or a smaller share"
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
            f"{_up(least / settings.statistics_share)}, as no noise makes the release of a statistic cost less than "
            f"{least:.4g}"
        )
    return _least_multiplier(cost, target)


def _up(value: float) -> str:
    """Round up to four digits, so that what a message allows is allowed."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return f"{math.ceil(value / unit) * unit:.4g}"


def _least_multiplier(cost: Callable[[float], float], target: float) -> float:
    """Find the smallest noise multiplier that costs at most the target; MAX_MULTIPLIER does."""
    # Plans without differential privacy import this module too, and SciPy takes half a second.
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
    # The result is larger than the root by more than the root's error.
    return min(math.exp(root + _TOLERANCE / 2), high)


@dataclass(frozen=True)
class Guesses:
    """How an auditor guessed.

    Args:
        canaries: m, each among the examples with probability 1/2.
        made: r, of how many of them the auditor guessed whether they were; at most m.
        correct: v, how many of these guesses were right.
    """

    canaries: int
    made: int
    correct: int


def guess(scores: Tensor, included: Tensor, *, made: int) -> Guesses:
    """Guess that the canaries with the highest scores were among the examples, and those with the lowest were not.

    Args:
        scores: higher where the release suggests that the canary was there, shape (canaries,).
        included: whether they were there, booleans of this shape.
        made: r, how many guesses; half of them for either end.
    """
    ordered = included[scores.argsort(descending=True)]
    highest, lowest = (made + 1) // 2, made // 2
    correct = ordered[:highest].sum() + (~ordered[len(ordered) - lowest :]).sum()
    return Guesses(canaries=len(scores), made=made, correct=int(correct))


def p_value(guesses: Guesses, *, epsilon: float, delta: float) -> float:
    """Bound the probability of as many correct guesses, or more, by chance (Theorem 5.2).

    It is beta + 2 m delta alpha, at most 1, where beta = P[W >= v], alpha = max_i P[v > W >= v - i] / i and W is
    binomial: the correct ones of r guesses that are each right with probability e^epsilon / (1 + e^epsilon).

    Args:
        epsilon: of the guarantee that is doubted.
        delta: of the same guarantee.
    """
    # Plans without audits import this module too, and SciPy takes half a second.
    from scipy.stats import binom

    right = 1 / (1 + np.exp(-epsilon))
    beta = binom.sf(guesses.correct - 1, guesses.made, right)
    counts = np.arange(1, guesses.correct + 1)
    below = np.cumsum(binom.pmf(guesses.correct - counts, guesses.made, right))
    alpha = (below / counts).max(initial=0.0)
    return float(min(beta + 2 * guesses.canaries * delta * alpha, 1.0))


def lower_bound(guesses: Guesses, *, delta: float) -> float:
    """Find the largest epsilon, from 0 to 100, that the guesses refute at 95 % confidence."""
    from scipy.optimize import brentq

    def excess(epsilon: float) -> float:
        return p_value(guesses, epsilon=epsilon, delta=delta) - (1 - _CONFIDENCE)

    if excess(0.0) >= 0:
        return 0.0
    return float(brentq(excess, 0.0, _LARGEST)) if excess(_LARGEST) > 0 else _LARGEST
