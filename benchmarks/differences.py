"""Columns of a table that compares accuracies over seeds."""

from collections.abc import Mapping

from fedfisher_core.reporting.measure import Measure, paired_difference


def columns(found: Mapping[int, float], reference: Mapping[int, float]) -> str:
    """Print a mean accuracy, its difference from another over the same seeds, and the 95 % interval of that pair.

    Args:
        found: fractions by seed.
        reference: likewise.

    Returns:
        The columns, padded, in percent and points; without an interval where there are too few seeds.
    """
    difference = paired_difference(found, reference)
    mean = 0.0 if difference is None else 100 * difference.mean
    interval = None if difference is None else difference.interval
    ends = "" if interval is None else f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}"
    return f"{Measure.of(list(found.values())).percent():16}{mean:6.2f}  {ends:20}"
