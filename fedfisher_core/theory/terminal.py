"""The two curves as plain text, for the terminal."""

from collections.abc import Sequence

from fedfisher_core.reporting.formats import plural, significant
from fedfisher_core.theory.curves import Curve, curve_of
from fedfisher_core.theory.findings import steps_finding, width_finding
from fedfisher_core.theory.rows import METHODS, TwoLayerRow


def two_layer_table(rows: Sequence[TwoLayerRow]) -> str:
    """Write the mean training errors as aligned text tables.

    Args:
        rows: the rows of a benchmark.

    Returns:
        A block for each curve: a line a point, and whether the curve is as predicted. No newline ends it.
    """
    width, steps = curve_of(rows, "width"), curve_of(rows, "local_steps")
    return "\n\n".join(
        [_block(width, width_finding(width).agrees), _block(steps, steps_finding(steps).agrees)],
    )


def _block(curve: Curve, agrees: str) -> str:
    lines = [[curve.name, *METHODS]]
    lines += [
        [str(point.value), *(significant(point.bands[method].mean) for method in METHODS)] for point in curve.points
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(map(str.rjust, line, widths)) for line in lines]
    title = f"mean training error by {curve.name} ({plural(len(curve.seeds), 'seed')}); as predicted: {agrees}"
    return "\n".join([title, text[0], "-" * len(text[0]), *text[1:]])
