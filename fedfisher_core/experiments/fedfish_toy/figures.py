"""The figures of the toy regression: the functions that were learned, and the client-server barriers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedfisher_core.experiments.fedfish_toy.findings import overlap_name
from fedfisher_core.experiments.fedfish_toy.rows import METHODS
from fedfisher_core.experiments.fedfish_toy.summary import Setting
from fedfisher_core.reporting.drawing import (
    INK,
    MethodStyle,
    legend_below,
    method_styles,
    new_figure,
    panel_title,
    plain_axes,
)
from fedfisher_core.reporting.formats import plural
from fedfisher_core.reporting.measure import gather

if TYPE_CHECKING:
    from fedfisher_core.regression.measuring import Measured, Stage

LABELS = {"fedavg": "FedAvg", "fedfish": "FedFish"}


@dataclass(frozen=True)
class Drawn:
    """One federation, to be drawn.

    Args:
        overlap: of the clients' intervals.
        points: the inputs at which functions were evaluated.
        truth: the true function there.
        intervals: lower and upper end of each client's.
        measured: the samples and the learned functions.
    """

    overlap: float
    points: Sequence[float]
    truth: Sequence[float]
    intervals: Sequence[tuple[float, float]]
    measured: "Measured"


def functions_figure(drawn: Sequence[Drawn], epochs: Sequence[int]) -> Figure:
    """Draw the functions of clients and global models beside the true one, as Figure 2 of the paper does.

    Args:
        drawn: one federation for each overlap, a column each; at least one.
        epochs: numbers of local epochs, a line of panels each.

    Returns:
        The figure. A client's function is drawn in full on its own interval, and faintly elsewhere.
    """
    figure = new_figure(3.1 * len(drawn), 2.3 * len(epochs) + 0.5)
    grid = figure.subplots(len(epochs), len(drawn), sharex=True, sharey=True, squeeze=False)
    clients = len(drawn[0].intervals)
    styles = method_styles([*METHODS, *map(_client, range(clients))])
    for line, local_epochs in enumerate(epochs):
        for column, one in enumerate(drawn):
            axes = grid[line][column]
            _draw_functions(axes, one, one.measured.stages[line], styles)
            panel_title(axes, f"{overlap_name(one.overlap)}, {plural(local_epochs, 'epoch')}")
            plain_axes(axes, grid=None)
    # What a model says far from its samples may be anything; the panels show where the function is.
    values = [value for one in drawn for own in one.measured.targets for value in own]
    margin = 0.35 * (max(values) - min(values)) or 1.0
    grid[0][0].set_ylim(min(values) - margin, max(values) + margin)
    for axes in grid[-1]:
        axes.set_xlabel("x")
    handles, labels = grid[0][0].get_legend_handles_labels()
    legend_below(figure, columns=min(5, len(labels)), handles=handles, labels=labels)
    return figure


def _draw_functions(axes: Axes, drawn: Drawn, stage: "Stage", styles: Mapping[str, MethodStyle]) -> None:
    axes.plot(drawn.points, drawn.truth, color=INK, alpha=0.25, linewidth=4, label="true function")
    curves = zip(drawn.intervals, stage.local_curves, strict=True)
    for client, ((low, high), curve) in enumerate(curves):
        colour = styles[_client(client)].colour
        axes.plot(
            drawn.measured.inputs[client],
            drawn.measured.targets[client],
            color=colour,
            marker=".",
            markersize=2.5,
            linestyle="none",
            alpha=0.35,
        )
        axes.plot(drawn.points, curve, color=colour, linewidth=0.8, alpha=0.35)
        inside = [(x, z) for x, z in zip(drawn.points, curve, strict=True) if low <= x <= high]
        axes.plot([x for x, _ in inside], [z for _, z in inside], color=colour, linewidth=1.6, label=f"client {client}")
    for method in METHODS:
        curve = getattr(stage, method).curve
        line = "--" if method == "fedavg" else "-"
        axes.plot(drawn.points, curve, color=styles[method].colour, linewidth=1.5, linestyle=line, label=LABELS[method])


def _client(client: int) -> str:
    return f"client {client}"


def barrier_figure(settings: Sequence[Setting]) -> Figure:
    """Draw FedAvg's client-server barriers against FedFish's, as the last panel of the paper's Figure 2 does.

    Args:
        settings: all of a benchmark.

    Returns:
        The figure: a panel for each number of local epochs, a point for each overlap and seed. Above the diagonal
        FedFish's barrier is the lower one.
    """
    by_epochs = gather(settings, lambda one: one.local_epochs)
    figure = new_figure(3.1 * len(by_epochs), 3.4)
    panels = figure.subplots(1, len(by_epochs), squeeze=False)[0]
    overlaps = {one.overlap: overlap_name(one.overlap) for one in settings}
    styles = method_styles(overlaps.values())
    for axes, (epochs, own) in zip(panels, sorted(by_epochs.items()), strict=True):
        drawn = [0.0]
        for one in own:
            fedavg, fedfish = (one.methods[method].values("barrier") for method in METHODS)
            style = styles[overlaps[one.overlap]]
            axes.plot(
                fedfish,
                fedavg,
                color=style.colour,
                marker=style.marker,
                markersize=4.5,
                linestyle="none",
                label=overlaps[one.overlap],
            )
            drawn += [*fedavg, *fedfish]
        ends = [min(drawn), max(drawn)]
        axes.plot(ends, ends, color=INK, alpha=0.45, linewidth=1, zorder=0)
        panel_title(axes, plural(epochs, "local epoch"))
        plain_axes(axes, grid=None)
        axes.set_xlabel("barrier of FedFish")
    panels[0].set_ylabel("barrier of FedAvg")
    handles, labels = panels[0].get_legend_handles_labels()
    legend_below(figure, columns=min(3, len(labels)), handles=handles, labels=labels)
    return figure
