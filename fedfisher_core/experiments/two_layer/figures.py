"""Figures 1a and 1b, measured."""

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, NullLocator

from fedfisher_core.experiments.two_layer.curves import Curve
from fedfisher_core.experiments.two_layer.rows import METHODS
from fedfisher_core.reporting.drawing import INK, method_styles, plain_axes

LABELS = {
    "fedfisher": "FedFisher, full Fishers",
    "fedavg": "FedAvg",
    "local": "local models, own data (reference)",
}
AXES = {"width": "width m", "local_steps": "local steps K"}
FIXED = {"width": "local steps", "local_steps": "hidden units"}


def error_figure(curve: Curve) -> Figure:
    """Draw the training errors along a curve, both axes logarithmic.

    Args:
        curve: the errors over seeds.

    Returns:
        The figure: geometric means over seeds, in bands of the geometric standard deviation.
    """
    figure = Figure(figsize=(6.4, 4.2), layout=ConstrainedLayoutEngine(), facecolor="none")
    axes = figure.add_subplot()
    styles = method_styles(METHODS)
    values = [point.value for point in curve.points]
    for method in METHODS:
        bands = [point.bands[method] for point in curve.points]
        style = styles[method]
        axes.fill_between(
            values, [band.low for band in bands], [band.high for band in bands], color=style.colour, alpha=0.15, lw=0
        )
        axes.plot(
            values,
            [band.geometric_mean for band in bands],
            color=style.colour,
            marker=style.marker,
            markersize=8 if style.marker == "*" else 5.5,
            markerfacecolor="none" if method == "local" else style.colour,
            linestyle=style.line,
            linewidth=1.3,
            label=LABELS[method],
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(values)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel(AXES[curve.name])
    axes.set_ylabel(f"training error at {curve.fixed} {FIXED[curve.name]}")
    plain_axes(axes, grid="y")
    figure.legend(loc="outside lower center", ncols=3, fontsize=9, frameon=False, labelcolor=INK, handlelength=2.4)
    return figure
