"""What Theorem 1 predicts of each curve, whether the measured one shows it, and both as tables for the terminal."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedfisher_core.experiments.two_layer.curves import Curve, Point, curve_of
from fedfisher_core.experiments.two_layer.rows import METHODS, TwoLayerRow
from fedfisher_core.reporting.formats import plural, significant
from fedfisher_core.reporting.tables import Table

Agreement = Literal["yes", "in part", "no", "too few points"]


@dataclass(frozen=True)
class Finding:
    """A prediction and what was measured.

    Args:
        figure: the paper's figure.
        predicted: what the theory says.
        measured: what the mean over seeds does.
        agrees: whether they agree over the whole range.
    """

    figure: str
    predicted: str
    measured: str
    agrees: Agreement


def width_finding(curve: Curve) -> Finding:
    """Compare the curve over widths with the prediction that the error falls.

    Args:
        curve: training errors against width.

    Returns:
        "yes" if the mean error of FedFisher falls from each width to the next, "in part" if it falls only from the
        first to the last.
    """
    first, last = curve.points[0], curve.points[-1]
    wrong = _pairs(curve.points, rising=True)
    agrees: Agreement = "yes" if not wrong else "in part" if _error(last) < _error(first) else "no"
    seeds = sum(after < before for before, after in zip(_seeds(first), _seeds(last), strict=True))
    course = f"rises {_ranges(wrong)}" if wrong else "falls from each width to the next"
    return Finding(
        figure="1a",
        predicted="The error falls with the width: the Laplace approximation's part of the bound goes as 1/m.",
        measured=f"The mean error {course}. From width {first.value} to {last.value} it goes from "
        f"{significant(_error(first))} to {significant(_error(last))}, "
        f"and falls in {seeds} of {len(curve.seeds)} seeds.",
        agrees=agrees if len(curve.points) > 1 else "too few points",
    )


def steps_finding(curve: Curve) -> Finding:
    """Compare the curve over local steps with the prediction that the error falls and then rises.

    Args:
        curve: training errors against local steps.

    Returns:
        "yes" if the mean error of FedFisher falls at each step to a lowest value within the range and rises at
        each after it, "in part" if it has its lowest value within the range, but doesn't fall or rise throughout.
    """
    points = curve.points
    lowest = min(range(len(points)), key=lambda index: _error(points[index]))
    wrong = [
        (_pairs(points[: lowest + 1], rising=True), "rises", "Before"),
        (_pairs(points[lowest:], rising=False), "falls", "After"),
    ]
    parts = [f"The mean error is lowest, {significant(_error(points[lowest]))}, at {points[lowest].value} local steps."]
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
        agrees=agrees if len(points) > 2 else "too few points",
    )


def _error(point: Point) -> float:
    return point.bands["fedfisher"].mean


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
    """Write the mean training errors as tables.

    Args:
        rows: the results.

    Returns:
        A table for each curve: a line a point, and whether the curve is as predicted.
    """
    width, steps = curve_of(rows, "width"), curve_of(rows, "local_steps")
    return [_table(width, width_finding(width)), _table(steps, steps_finding(steps))]


def _table(curve: Curve, finding: Finding) -> Table:
    lines = [
        [str(point.value), *(significant(point.bands[method].mean) for method in METHODS)] for point in curve.points
    ]
    seeds = plural(len(curve.seeds), "seed")
    title = f"mean training error by {curve.name} ({seeds}); as predicted: {finding.agrees}"
    return Table(title=title, header=[curve.name, *METHODS], lines=lines, words=0)
