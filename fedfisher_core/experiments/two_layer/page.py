"""The report of the two-layer experiment: one HTML page, and Figures 1a and 1b, measured."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from fedfisher_core.experiments.two_layer.curves import Curve, curve_of
from fedfisher_core.experiments.two_layer.findings import steps_finding, width_finding
from fedfisher_core.experiments.two_layer.plan import TwoLayerPlan
from fedfisher_core.experiments.two_layer.rows import METHODS, TwoLayerRow
from fedfisher_core.reporting.drawing import legend_below, method_styles, new_figure, plain_axes, to_png, to_svg
from fedfisher_core.reporting.page import PageData, render
from fedfisher_core.walk import Outcome

_LABELS = {
    "fedfisher": "FedFisher, full Fishers",
    "fedavg": "FedAvg",
    "local": "local models, own data (reference)",
}
_AXES = {"width": "width m", "local_steps": "local steps K"}
_FIXED = {"width": "local steps", "local_steps": "hidden units"}


def report_files(plan: TwoLayerPlan, outcome: Outcome, rows: Sequence[TwoLayerRow], page: PageData) -> dict[str, bytes]:
    """Make the page, and both curves as pictures; see `Experiment.files`."""
    return {"index.html": render_two_layer(rows, page).encode(), **draw_curves(rows)}


def render_two_layer(rows: Sequence[TwoLayerRow], page: PageData) -> str:
    """Render a report.

    Args:
        rows: the results, every seed with the same points.
        page: what every report shows.

    Returns:
        The page.
    """
    width, steps = curve_of(rows, "width"), curve_of(rows, "local_steps")
    return render(
        "two_layer.html.j2",
        page,
        findings=[width_finding(width), steps_finding(steps)],
        curves=[("1a", width, to_svg(error_figure(width))), ("1b", steps, to_svg(error_figure(steps)))],
        methods=METHODS,
        labels=_LABELS,
        axes=_AXES,
        fixed=_FIXED,
        seeds=width.seeds,
        artifacts={row.seed: row.artifact for row in rows},
    )


def draw_curves(rows: Sequence[TwoLayerRow], *, dpi: int = 150) -> dict[str, bytes]:
    """Draw both curves.

    Args:
        rows: the results.
        dpi: pixels an inch.

    Returns:
        PNG files by name.
    """
    return {
        "error_by_width.png": to_png(error_figure(curve_of(rows, "width")), dpi=dpi),
        "error_by_local_steps.png": to_png(error_figure(curve_of(rows, "local_steps")), dpi=dpi),
    }


def error_figure(curve: Curve) -> Figure:
    """Draw the training errors along a curve, both axes logarithmic.

    Args:
        curve: the errors over seeds.

    Returns:
        The figure: geometric means over seeds, in bands of the geometric standard deviation.
    """
    figure = new_figure(6.4, 4.2)
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
            label=_LABELS[method],
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(values)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel(_AXES[curve.name])
    axes.set_ylabel(f"training error at {curve.fixed} {_FIXED[curve.name]}")
    plain_axes(axes, grid="y")
    legend_below(figure, columns=3)
    return figure
