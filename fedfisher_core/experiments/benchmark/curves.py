"""Curves of accuracy against rounds and against bits."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fedfisher_core.experiments.benchmark.algorithms import Algorithm, AlgorithmTable, Point
from fedfisher_core.reporting.drawing import (
    MethodStyle,
    legend_below,
    literal,
    method_styles,
    new_figure,
    panel_title,
    plain_axes,
)

_WIDTH = 10.0
_HEIGHT = 3.4
_MOST_MARKERS = 10


def curves_figure(tables: Sequence[AlgorithmTable]) -> Figure:
    """Draw each algorithm's accuracy against the round and against the bits sent until then.

    Bands are standard deviations over seeds.

    Args:
        tables: the algorithms, at least one table.

    Returns:
        The figure, a line of two panels a table.
    """
    names = sorted({algorithm.name for table in tables for algorithm in table.algorithms})
    styles = method_styles(names)
    per_line = max(1, min(len(names), int(72 * _WIDTH / (52 + 6 * max(map(len, names))))))
    legend = 0.24 * -(-len(names) // per_line)
    figure = new_figure(_WIDTH, _HEIGHT * len(tables) + legend, gap=0.08)
    for line, table in enumerate(tables):
        by_round = figure.add_subplot(len(tables), 2, 2 * line + 1)
        by_bits = figure.add_subplot(len(tables), 2, 2 * line + 2, sharey=by_round)
        for algorithm in table.algorithms:
            _draw(by_round, algorithm, lambda point: point.round, styles[algorithm.name])
            _draw(by_bits, algorithm, lambda point: point.bits / 8e6, styles[algorithm.name])
        by_round.xaxis.set_major_locator(MaxNLocator(integer=True))
        by_round.set_xlabel("round")
        by_round.set_ylabel("accuracy, %")
        by_bits.set_xlabel("sent until then in both directions, all clients, MB")
        panel_title(by_round, table.setting.label)
        for axes in (by_round, by_bits):
            plain_axes(axes, grid="y")
    handles = [_handle(name, styles[name]) for name in names]
    legend_below(figure, columns=per_line, handle_length=2.6, handles=handles)
    return figure


def _handle(name: str, style: MethodStyle) -> Line2D:
    return Line2D(
        [], [], color=style.colour, marker=style.marker, linestyle=style.line, linewidth=1.2, label=literal(name)
    )


def _draw(axes: Axes, algorithm: Algorithm, across: Callable[[Point], float], style: MethodStyle) -> None:
    places = [across(point) for point in algorithm.points]
    means = [100 * point.accuracy.mean for point in algorithm.points]
    spreads = [100 * (point.accuracy.deviation or 0.0) for point in algorithm.points]
    axes.plot(
        places,
        means,
        color=style.colour,
        marker=style.marker,
        markevery=max(1, len(places) // _MOST_MARKERS),
        markersize=4.5,
        linestyle=style.line,
        linewidth=1.2,
    )
    if any(spreads):
        lower = [mean - spread for mean, spread in zip(means, spreads, strict=True)]
        upper = [mean + spread for mean, spread in zip(means, spreads, strict=True)]
        axes.fill_between(places, lower, upper, color=style.colour, alpha=0.12, linewidth=0)
