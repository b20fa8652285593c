"""Ranks of methods over settings, and p-values that are corrected for the number of tests."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def ranks(scores: Sequence[float]) -> NDArray[np.float64]:
    """Rank methods in one setting, 1 for the best; methods that tie share the mean of their ranks.

    Args:
        scores: one a method; higher is better.
    """
    from scipy.stats import rankdata

    return rankdata([-score for score in scores])


def mean_ranks(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """Average the ranks of methods over settings, shape (methods,) (Demsar 2006, section 3.2.2).

    Args:
        scores: higher is better, shape (settings, methods).
    """
    return np.mean([ranks(row) for row in scores], axis=0)


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct the p-values of several tests for their number, in the same order (Holm 1979).

    Rejecting those below a level errs in any of them with at most that probability.
    """
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for done, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        largest = max(largest, min(1.0, (len(p_values) - done) * p_values[index]))
        corrected[index] = largest
    return corrected
