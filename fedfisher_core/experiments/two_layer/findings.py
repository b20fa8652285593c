"""The two curves of Figure 1 over seeds, and whether they show what Theorem 1 predicts."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fedfisher_core.experiments.two_layer.rows import METHODS, CurveName, TwoLayerRow
from fedfisher_core.reporting.formats import Table, plural, significant
from fedfisher_core.reporting.measure import gather


@dataclass(frozen=True)
class Band:
    """Training errors of one kind of model at one point of a curve, one a seed, in the order of the seeds."""

    errors: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return statistics.fmean(self.errors)

    @property
    def geometric_mean(self) -> float:
        """Geometric mean over the seeds; 0 if an error is 0."""
        return statistics.geometric_mean(self.errors) if min(self.errors) > 0 else 0.0

    @property
    def factor(self) -> float | None:
        """Geometric standard deviation over the seeds (n - 1); None for a single seed, or if an error is 0."""
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
    """One point of a curve: the width or the number of local steps, and the errors by method."""

    value: int
    bands: Mapping[str, Band]


@dataclass(frozen=True)
class Curve:
    """Training errors against the width or against the number of local steps.

    Args:
        name: what varies.
        fixed: value of what does not vary, the other of the two.
        seeds: ascending.
        points: by rising value.
    """

    name: CurveName
    fixed: int
    seeds: tuple[int, ...]
    points: tuple[Point, ...]


def curve_of(rows: Sequence[TwoLayerRow], name: CurveName) -> Curve:
    """Gather one curve of one benchmark; every seed must have the same points."""
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


Agreement = Literal["yes", "in part", "no", "too few points", "a single seed"]


@dataclass(frozen=True)
class Finding:
    """A prediction and what was measured.

    Args:
        agrees: whether both agree over the whole range.
    """

    figure: str
    predicted: str
    measured: str
    agrees: Agreement


def width_finding(curve: Curve) -> Finding:
    """Compare the curve over widths with the prediction that the error falls.

    It agrees if the geometric mean of FedFisher's errors falls from each width to the next, and agrees in part if it
    only falls from the first to the last. A single seed decides nothing.
    """
    first, last = curve.points[0], curve.points[-1]
    wrong = _pairs(curve.points, rising=True)
    agrees: Agreement = "yes" if not wrong else "in part" if _error(last) < _error(first) else "no"
    seeds = sum(after < before for before, after in zip(_seeds(first), _seeds(last), strict=True))
    course = f"rises {_ranges(wrong)}" if wrong else "falls from each width to the next"
    return Finding(
        figure="1a",
        predicted="The error falls with the width: the Laplace approximation's part of the bound goes as 1/m.",
        measured=f"The geometric mean error {course}. From width {first.value} to {last.value} it goes from "
        f"{significant(_error(first))} to {significant(_error(last))}, "
        f"and falls in {seeds} of {len(curve.seeds)} seeds.",
        agrees=_decided(curve, agrees, least=2),
    )


def steps_finding(curve: Curve) -> Finding:
    """Compare the curve over local steps with the prediction that the error falls and then rises.

    It agrees if the geometric mean of FedFisher's errors falls to a lowest value within the range and rises after it.
    It agrees in part if the lowest value is within the range, but the error does not fall or rise throughout. A single
    seed decides nothing.
    """
    points = curve.points
    lowest = min(range(len(points)), key=lambda index: _error(points[index]))
    wrong = [
        (_pairs(points[: lowest + 1], rising=True), "rises", "Before"),
        (_pairs(points[lowest:], rising=False), "falls", "After"),
    ]
    at = f"{significant(_error(points[lowest]))}, at {points[lowest].value} local steps"
    parts = [f"The geometric mean error is lowest, {at}."]
    parts += [f"{where} that it {verb} {_ranges(pairs)}." for pairs, verb, where in wrong if pairs]
    if lowest == len(points) - 1:
        parts.append("No rise is seen in this range.")
    else:
        seeds = sum(min(errors) < errors[-1] for errors in zip(*map(_seeds, points), strict=True))
        parts.append(
            f"At {points[-1].value} steps it is {significant(_error(points[-1]))}; {seeds} of {len(curve.seeds)} seeds "
            "have their own lowest error before."
        )
    within = 0 < lowest < len(points) - 1
    agrees: Agreement = "no" if not within else "in part" if any(pairs for pairs, *_ in wrong) else "yes"
    return Finding(
        figure="1b",
        predicted="The error falls with more local steps, as clients fit their data, and then rises, as their weights "
        "drift apart and the Laplace approximation with them.",
        measured=" ".join(parts),
        agrees=_decided(curve, agrees, least=3),
    )


def _decided(curve: Curve, agrees: Agreement, *, least: int) -> Agreement:
    if len(curve.points) < least:
        return "too few points"
    return "a single seed" if len(curve.seeds) == 1 else agrees


def _error(point: Point) -> float:
    # Errors of seeds differ by factors, as the scale of their data does.
    return point.bands["fedfisher"].geometric_mean


def _seeds(point: Point) -> tuple[float, ...]:
    return point.bands["fedfisher"].errors


def _pairs(points: Sequence[Point], *, rising: bool) -> list[tuple[int, int]]:
    return [
        (before.value, after.value)
        for before, after in itertools.pairwise(points)
        if (_error(after) >= _error(before) if rising else _error(after) <= _error(before))
    ]


def _ranges(pairs: list[tuple[int, int]]) -> str:
    return ", ".join(f"from {before} to {after}" for before, after in pairs)


def error_tables(rows: Sequence[TwoLayerRow]) -> list[Table]:
    """Write the mean training errors of each curve as a table, with a line a point and whether the prediction holds."""
    width, steps = curve_of(rows, "width"), curve_of(rows, "local_steps")
    return [_table(width, width_finding(width)), _table(steps, steps_finding(steps))]


def _table(curve: Curve, finding: Finding) -> Table:
    lines = [
        [str(point.value), *(significant(point.bands[method].mean) for method in METHODS)] for point in curve.points
    ]
    seeds = plural(len(curve.seeds), "seed")
    title = f"mean training error by {curve.name} ({seeds}); as predicted: {finding.agrees}"
    return Table(title=title, header=[curve.name, *METHODS], lines=lines, words=0)
