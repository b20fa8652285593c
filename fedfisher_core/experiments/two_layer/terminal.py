"""The two curves in short, for the terminal."""

from collections.abc import Sequence

from fedfisher_core.experiments.two_layer.curves import Curve, curve_of
from fedfisher_core.experiments.two_layer.findings import steps_finding, width_finding
from fedfisher_core.experiments.two_layer.rows import METHODS, TwoLayerRow
from fedfisher_core.reporting.formats import plural, significant
from fedfisher_core.reporting.tables import Table


def error_tables(rows: Sequence[TwoLayerRow]) -> list[Table]:
    """Write the mean training errors as tables.

    Args:
        rows: the results.

    Returns:
        A table for each curve: a line a point, and whether the curve is as predicted.
    """
    width, steps = curve_of(rows, "width"), curve_of(rows, "local_steps")
    return [_table(width, width_finding(width).agrees), _table(steps, steps_finding(steps).agrees)]


def _table(curve: Curve, agrees: str) -> Table:
    lines = [
        [str(point.value), *(significant(point.bands[method].mean) for method in METHODS)] for point in curve.points
    ]
    title = f"mean training error by {curve.name} ({plural(len(curve.seeds), 'seed')}); as predicted: {agrees}"
    return Table(title=title, header=[curve.name, *METHODS], lines=lines, words=0)
