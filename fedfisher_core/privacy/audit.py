"""What one run shows of a client's privacy: a lower bound on epsilon from guesses about canaries.

Steinke, Nasr and Jagielski 2023, "Privacy auditing with one (1) training run": m canaries are each among a client's
examples or not, by independent fair coins, and the auditor guesses some of the coins from what the client released.
Where the release is (epsilon, delta) differentially private, the guesses are hardly better than randomised response.
"""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

_LARGEST = 100.0
_CONFIDENCE = 0.95
"""Probability with which a bound holds, at least."""


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
        delta: likewise.
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
