"""Whether two means are the same for all practical purposes."""

import math
from dataclasses import dataclass

from scipy.special import stdtr, stdtrit

from fedfisher_core.errors import InputError
from fedfisher_core.reporting.measure import Measure


@dataclass(frozen=True)
class WelchDifference:
    """The difference of two independent means, whose deviations may differ (Welch 1947).

    Args:
        mean: of the first less the second.
        error: standard error of that.
        degrees: of freedom, by Welch and Satterthwaite.
    """

    mean: float
    error: float
    degrees: float

    @classmethod
    def of(cls, first: Measure, second: Measure) -> "WelchDifference":
        """Compare two measures.

        Args:
            first: with a deviation.
            second: with a deviation.

        Returns:
            Their difference.

        Raises:
            InputError: one has no deviation.
        """
        if first.deviation is None or second.deviation is None:
            raise InputError("a mean without a deviation can't be tested; allowed: at least two repetitions of each")
        terms = [one**2 / n for one, n in ((first.deviation, first.n), (second.deviation, second.n))]
        total = sum(terms)
        # Where nothing varies, any number of degrees gives the same answers.
        spread = sum(term**2 / (n - 1) for term, n in zip(terms, (first.n, second.n), strict=True))
        degrees = total**2 / spread if spread else 1.0
        return cls(first.mean - second.mean, math.sqrt(total), degrees)

    def interval(self, level: float) -> tuple[float, float]:
        """Find the interval that misses the true difference with a probability of `level`."""
        half = float(stdtrit(self.degrees, 1 - level / 2)) * self.error
        return self.mean - half, self.mean + half

    def p_equivalent(self, margin: float) -> float:
        """Test that the true difference lies within a margin, by two one-sided tests (Schuirmann 1987).

        Args:
            margin: largest difference that does not matter, above 0.

        Returns:
            The larger of the p-values of "no larger than -margin" and "no smaller than margin".
        """
        return max(self._below(-(self.mean + margin)), self._below(self.mean - margin))

    def p_beyond(self, margin: float) -> float:
        """Test that the true difference lies beyond a margin, on either side.

        Args:
            margin: largest difference that does not matter, above 0.

        Returns:
            The p-value of "within the margin": how often a mean is as far beyond, on one side or the other, where the
            true difference is the margin itself.
        """
        return min(1.0, self._below(margin - abs(self.mean)) + self._below(-margin - abs(self.mean)))

    def _below(self, distance: float) -> float:
        """Probability that an error is as far below 0 as `distance` is."""
        if self.error == 0:
            return float(distance >= 0)
        return float(stdtr(self.degrees, distance / self.error))
