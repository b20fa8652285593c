"""The first of many methods beside each other one, over settings: how often, how much and how surely it is ahead."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.reporting.measure import DIGITS
from fedfisher_core.reporting.ranks import holm

LEAST_SETTINGS = 6
"""With fewer, no two-sided signed-rank test finds anything at 5 %."""


@dataclass(frozen=True)
class Ahead:
    """One method beside another over the same settings.

    Args:
        other: label of the other method.
        wins: settings in which the one has the higher score.
        losses: settings in which the other has it.
        mean: mean of the one's score less the other's.
        lowest: the smallest of these differences.
        p_value: of the signed-rank test, corrected for every pair of methods; None for fewer settings than
            `LEAST_SETTINGS`.
    """

    other: str
    wins: int
    losses: int
    mean: float
    lowest: float
    p_value: float | None


def signed_rank_p_value(differences: NDArray[np.floating]) -> float:
    """Test whether differences over settings scatter around 0 (Wilcoxon 1945; Demsar 2006, section 3.1.3).

    Args:
        differences: of two methods' scores, shape (settings,); those of 0 count for either side by half. They are
            compared to `DIGITS` digits.

    Returns:
        The two-sided probability of signed ranks as uneven where no method is better.
    """
    # Loads for half a second.
    from scipy.stats import wilcoxon

    differences = np.round(differences, DIGITS)
    if not np.any(differences):
        return 1.0
    return float(wilcoxon(differences, zero_method="zsplit").pvalue)


def beside_others(scores: NDArray[np.floating], methods: Sequence[str]) -> tuple[Ahead, ...]:
    """Compare the first method with each other one over settings.

    The first may have been chosen by these very scores, so p-values are corrected for all pairs of methods and not for
    those alone that are returned. Signed ranks of a pair do not depend on what other methods ran, as mean ranks do
    (Benavoli et al. 2016).

    Args:
        scores: higher is better, shape (settings, methods).
        methods: label of each column.

    Returns:
        One entry for each method but the first, in the order of the columns.
    """
    pairs = list(itertools.combinations(range(len(methods)), 2))
    p_values: list[float] | list[None] = [None] * len(pairs)
    if len(scores) >= LEAST_SETTINGS:
        p_values = holm([signed_rank_p_value(scores[:, one] - scores[:, other]) for one, other in pairs])
    return tuple(
        _ahead(scores[:, 0] - scores[:, other], methods[other], p_value)
        for (one, other), p_value in zip(pairs, p_values, strict=True)
        if one == 0
    )


def _ahead(differences: NDArray[np.floating], other: str, p_value: float | None) -> Ahead:
    return Ahead(
        other=other,
        wins=int((np.round(differences, DIGITS) > 0).sum()),
        losses=int((np.round(differences, DIGITS) < 0).sum()),
        mean=float(differences.mean()),
        lowest=float(differences.min()),
        p_value=p_value,
    )
