"""The two curves of Figure 1, summarised over seeds.

Seeds differ in the scale of their data, so errors spread by factors: beside the mean stand the geometric mean and
the geometric standard deviation, by which the band around a curve is multiplied and divided.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedfisher_core.experiments.two_layer.rows import METHODS, CurveName, TwoLayerRow
from fedfisher_core.reporting.measure import gather


@dataclass(frozen=True)
class Band:
    """Training errors of one kind of model at one point of a curve.

    Args:
        errors: one for each seed, in the order of the seeds.
    """

    errors: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return statistics.fmean(self.errors)

    @property
    def geometric_mean(self) -> float:
        """Geometric mean over the seeds; 0 if an error is."""
        return statistics.geometric_mean(self.errors) if min(self.errors) > 0 else 0.0

    @property
    def factor(self) -> float | None:
        """Geometric standard deviation over the seeds (n - 1); None for a single seed, and if an error is 0."""
        if len(self.errors) == 1 or min(self.errors) == 0:
            return None
        return math.exp(statistics.stdev(map(math.log, self.errors)))

    @property
    def low(self) -> float:
        """Lower edge of the band."""
        return self.geometric_mean / (self.factor or 1.0)

    @property
    def high(self) -> float:
        """Upper edge of the band."""
        return self.geometric_mean * (self.factor or 1.0)


@dataclass(frozen=True)
class Point:
    """One point of a curve.

    Args:
        value: the width or the number of local steps.
        bands: the errors by method.
    """

    value: int
    bands: Mapping[str, Band]


@dataclass(frozen=True)
class Curve:
    """Training errors against the width or against the number of local steps.

    Args:
        name: what varies.
        fixed: what does not, the other of the two.
        seeds: ascending.
        points: by rising value.
    """

    name: CurveName
    fixed: int
    seeds: tuple[int, ...]
    points: tuple[Point, ...]


def curve_of(rows: Sequence[TwoLayerRow], name: CurveName) -> Curve:
    """Gather one curve.

    Args:
        rows: of one benchmark, every seed with the same points.
        name: which curve.

    Returns:
        The curve.
    """
    own = sorted((row for row in rows if row.curve == name), key=lambda row: (row.value, row.seed))
    points = []
    for value, here in gather(own, lambda row: row.value).items():
        bands = {method: Band(tuple(row.training_error for row in here if row.method == method)) for method in METHODS}
        points.append(Point(value, bands))
    return Curve(
        name=name,
        fixed=own[0].local_steps if name == "width" else own[0].width,
        seeds=tuple(dict.fromkeys(row.seed for row in own)),
        points=tuple(points),
    )
