"""Many methods over many settings: ranks, and differences that survive that many comparisons.

scipy's tests load for half a second, so that whoever ranks nothing does not wait for them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.errors import InputError

_LEAST_METHODS = 3


@dataclass(frozen=True)
class RankedMethods:
    """Methods by their mean rank.

    Args:
        methods: labels, the best first.
        mean_ranks: of each; 1 is the best.
        num_settings: how many settings the ranks are averaged over.
        critical_difference: by how much two mean ranks must differ to tell the methods apart at a level of 5 %
            (Nemenyi's test).
    """

    methods: tuple[str, ...]
    mean_ranks: tuple[float, ...]
    num_settings: int
    critical_difference: float

    @property
    def groups(self) -> list[tuple[int, int]]:
        """Places of the first and the last method of each largest group that can't be told apart."""
        found: list[tuple[int, int]] = []
        for first, best in enumerate(self.mean_ranks):
            last = max(place for place, rank in enumerate(self.mean_ranks) if rank - best <= self.critical_difference)
            if last > first and (not found or last > found[-1][1]):
                found.append((first, last))
        return found


def ranks(scores: Sequence[float]) -> NDArray[np.float64]:
    """Rank methods in one setting.

    Args:
        scores: one a method; higher is better.

    Returns:
        1 for the best; methods that tie share the mean of their ranks.
    """
    from scipy.stats import rankdata

    return rankdata([-score for score in scores])


def mean_ranks(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """Average the ranks of methods over settings (Demsar 2006, section 3.2.2).

    Args:
        scores: higher is better, shape (settings, methods).

    Returns:
        Shape (methods,).
    """
    return np.mean([ranks(row) for row in scores], axis=0)


def friedman_p_value(scores: NDArray[np.floating]) -> float:
    """Test whether any method differs from the others (Friedman 1937).

    Args:
        scores: shape (settings, methods); at least 3 methods and 2 settings.

    Returns:
        The probability of ranks that differ as much where no method differs.

    Raises:
        InputError: there are too few methods or settings.
    """
    from scipy.stats import friedmanchisquare

    settings, methods = scores.shape
    if methods < _LEAST_METHODS or settings < 2:
        raise InputError(
            f"a test of ranks over {settings} settings and {methods} methods; allowed: at least 2 and {_LEAST_METHODS}"
        )
    if (scores == scores[:, :1]).all():
        return 1.0
    return float(friedmanchisquare(*scores.T).pvalue)


def critical_difference(methods: int, settings: int, *, level: float = 0.05) -> float:
    """Find by how much the mean ranks of two methods must differ (Nemenyi 1963; Demsar 2006, section 3.2.2).

    Args:
        methods: how many are compared, at least 2.
        settings: how many their ranks are averaged over.
        level: probability of finding a difference between any two methods that do not differ.

    Returns:
        q sqrt(k (k + 1) / (6 N)) with the studentised range's quantile q over sqrt(2).
    """
    from scipy.stats import studentized_range

    quantile = float(studentized_range.ppf(1 - level, methods, np.inf)) / math.sqrt(2)
    return quantile * math.sqrt(methods * (methods + 1) / (6 * settings))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct the p-values of several tests for their number (Holm 1979).

    Args:
        p_values: one a test, in any order.

    Returns:
        Corrected p-values in the same order; to reject those below a level errs in any of them with at most that
        probability.
    """
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for done, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        largest = max(largest, min(1.0, (len(p_values) - done) * p_values[index]))
        corrected[index] = largest
    return corrected


def holm_levels(p_values: Sequence[float], *, level: float = 0.05) -> list[float]:
    """Find the level at which Holm's procedure tests each of several hypotheses.

    The interval of a test at its level excludes what the hypothesis says exactly where `holm` rejects it. Such
    intervals don't hold all at once with the confidence of the procedure; Bonferroni's, the widest of them, do.

    Args:
        p_values: one a test, in any order.
        level: of the whole procedure.

    Returns:
        `level` over the number of hypotheses that are left when a test's turn comes; all from the first that is not
        rejected share its level.
    """
    levels = [0.0] * len(p_values)
    left = len(p_values)
    rejecting = True
    for index in sorted(range(len(p_values)), key=lambda index: p_values[index]):
        levels[index] = level / left
        rejecting = rejecting and p_values[index] <= levels[index]
        left -= rejecting
    return levels
