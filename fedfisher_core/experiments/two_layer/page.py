"""The report of the two-layer experiment: one HTML page, and the two figures."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from markupsafe import Markup

from fedfisher_core.experiments.two_layer.curves import curve_of
from fedfisher_core.experiments.two_layer.figures import AXES, FIXED, LABELS, error_figure
from fedfisher_core.experiments.two_layer.findings import steps_finding, width_finding
from fedfisher_core.experiments.two_layer.rows import METHODS, TwoLayerRow
from fedfisher_core.reporting import formats
from fedfisher_core.reporting.drawing import to_png, to_svg
from fedfisher_core.reporting.notes import notes_html
from fedfisher_core.reporting.page import PageData, template_environment, template_text


@dataclass(frozen=True)
class TwoLayerReport(PageData):
    """All that a report shows.

    Args:
        rows: the results, every seed with the same points.
    """

    rows: Sequence[TwoLayerRow]


def render_two_layer(report: TwoLayerReport) -> str:
    """Render a report as one self-contained HTML page.

    Args:
        report: what to show.

    Returns:
        The page; equal reports give equal text. It makes no request and runs no script.
    """
    width, steps = curve_of(report.rows, "width"), curve_of(report.rows, "local_steps")
    environment = template_environment()
    environment.filters["significant"] = formats.significant
    return environment.get_template("two_layer.html.j2").render(
        report=report,
        style=Markup(template_text("style.css")),
        notes=notes_html(report.notes),
        settings=formats.settings_groups(report.settings),
        findings=[width_finding(width), steps_finding(steps)],
        curves=[
            ("1a", width, Markup(to_svg(error_figure(width)))),
            ("1b", steps, Markup(to_svg(error_figure(steps)))),
        ],
        methods=METHODS,
        labels=LABELS,
        axes=AXES,
        fixed=FIXED,
        seeds=width.seeds,
        artifacts={row.seed: row.artifact for row in report.rows},
    )


def report_files(rows: Sequence[TwoLayerRow], page: PageData) -> dict[str, bytes]:
    """Make the page, and both curves as pictures.

    Args:
        rows: the results.
        page: what every report shows.

    Returns:
        The files by name.
    """
    shared = {field.name: getattr(page, field.name) for field in fields(PageData)}
    return {"index.html": render_two_layer(TwoLayerReport(**shared, rows=rows)).encode(), **draw_curves(rows)}


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
