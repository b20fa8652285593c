"""Figures of a privacy attack: accuracies by case, by privacy budget, and what was reconstructed."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedfisher_core.experiments.attack.rows import AttackRow
from fedfisher_core.experiments.attack.summary import summarise
from fedfisher_core.reporting.drawing import (
    INK,
    MethodStyle,
    legend_below,
    literal,
    method_styles,
    new_figure,
    panel_title,
    plain_axes,
)
from fedfisher_core.reporting.measure import Repeated

_WITHOUT = "none"


def case_figure(rows: Sequence[AttackRow]) -> Figure:
    """Draw attack accuracies: a bar a method with its mean, a dot a target label and seed.

    Args:
        rows: of one data set, network and privacy budget, with the floors and ceilings.

    Returns:
        The figure.
    """
    summaries = summarise(rows)[::-1]
    figure = new_figure(7.2, 0.9 + 0.46 * len(summaries))
    axes = figure.add_subplot()
    styles = method_styles(summary.row.method for summary in summaries)
    for place, summary in enumerate(summaries):
        values = 100 * np.array(summary.values("attack_accuracy"))
        reference = summary.row.reference
        colour = INK if reference else styles[summary.row.method].colour
        axes.barh(place, values.mean(), height=0.62, color=colour, alpha=0.18 if reference else 0.4)
        # Spread by their order, so that equal values stay apart.
        axes.plot(values, place + np.linspace(-0.2, 0.2, len(values)), "o", color=colour, markersize=3.5)
    axes.set_yticks(range(len(summaries)), [literal(f"{one.row.method}: {one.row.case}") for one in summaries])
    axes.set_xlim(0, 102)
    axes.set_xlabel("images in which the evaluator sees the target label, in per cent")
    plain_axes(axes, grid="x")
    return figure


def budget_figure(rows: Sequence[AttackRow]) -> Figure:
    """Draw the methods' accuracy and the attack's against the budget of differential privacy.

    Args:
        rows: of one data set and network, at several budgets.

    Returns:
        The figure: means and standard deviations over target labels and seeds.
    """
    figure = new_figure(9.6, 3.9)
    left, right = figure.subplots(1, 2)
    summaries = summarise([row for row in rows if not row.reference])
    # What has no budget stands at the right.
    budgets = sorted(
        {one.row.epsilon for one in summaries}, key=lambda epsilon: math.inf if epsilon is None else epsilon
    )
    places = {epsilon: place for place, epsilon in enumerate(budgets)}
    styles = method_styles(one.row.attack for one in summaries)
    # All attacks through a method are on the same models, whose accuracy is drawn once.
    first = {one.row.method: one.row.attack for one in summaries[::-1]}
    models = [one for one in summaries if one.row.attack == first[one.row.method]]
    _curves(left, models, places, "accuracy", styles)
    _curves(right, summaries, places, "attack_accuracy", styles)
    panel_title(left, "Test accuracy of the global model, %")
    panel_title(right, "Attack accuracy, %")
    legend_below(figure, columns=3, handles=right.get_legend_handles_labels()[0])
    return figure


def _curves(
    axes: Axes,
    summaries: Sequence[Repeated[AttackRow]],
    places: dict[float | None, int],
    field: str,
    styles: Mapping[str, MethodStyle],
) -> None:
    for attack, style in styles.items():
        own = sorted((one for one in summaries if one.row.attack == attack), key=lambda one: places[one.row.epsilon])
        if not own:
            continue
        measures = [one.measure(field) for one in own]
        axes.errorbar(
            [places[one.row.epsilon] for one in own],
            [100 * measure.mean for measure in measures],
            yerr=[100 * (measure.deviation or 0) for measure in measures],
            color=style.colour,
            marker=style.marker,
            linestyle=style.line,
            linewidth=1.3,
            elinewidth=0.8,
            capsize=2.5,
            label=literal(attack),
        )
    axes.set_xticks(list(places.values()), [_WITHOUT if one is None else f"{one:g}" for one in places])
    axes.set_xlabel("ε of each client")
    plain_axes(axes, grid="y")
