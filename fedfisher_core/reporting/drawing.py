"""How every figure looks: colours and markers of the methods, axes, and the way to SVG and PNG.

Only matplotlib's objects are used, no pyplot and no rcParams, as reports are made in threads.
"""

import hashlib
import io
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from fedfisher_core.reporting.measure import BASELINE

INK = "#1a1d22"
"""Text and axes; `to_svg` turns it into the page's text colour, so that a figure follows the scheme."""

# Okabe and Ito's colours that can be told apart on white and on black, in their order of contrast.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_LINES = ("-", (0, (5, 1.5)), (0, (1.5, 1.5)), (0, (6, 1.5, 1.5, 1.5)))
_LABEL_WIDTH = 30
_TITLE_WIDTH = 36


@dataclass(frozen=True)
class MethodStyle:
    """Colour, marker and line by which a method is known in all figures of a report."""

    colour: str
    marker: str
    line: str | tuple[float, tuple[float, ...]]


def method_styles(methods: Iterable[str]) -> dict[str, MethodStyle]:
    """Give every method its style; FedAvg has the colour of the text.

    Args:
        methods: labels of all methods of a report, in any order.

    Returns:
        Styles by label, the same for the same set of labels; up to 42 methods differ in colour or marker.
    """
    others = sorted(set(methods) - {BASELINE})
    styles = {
        method: MethodStyle(
            _COLOURS[index % len(_COLOURS)],
            _MARKERS[index % len(_MARKERS)],
            _LINES[index // len(_COLOURS) % len(_LINES)],
        )
        for index, method in enumerate(others)
    }
    return {BASELINE: MethodStyle(INK, "*", "-"), **styles}


def literal(text: str) -> str:
    """Wrap a label, and keep its dollar signs from being read as mathematics."""
    return textwrap.fill(text, _LABEL_WIDTH).replace("$", r"\$")


def new_figure(width: float, height: float, *, gap: float | None = None) -> Figure:
    """Make a figure without a background, whose parts keep clear of each other.

    Args:
        width: in inches.
        height: in inches.
        gap: between lines of panels, as a share of their height; None for matplotlib's own.

    Returns:
        The empty figure.
    """
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(hspace=gap), facecolor="none")


def legend_below(figure: Figure, *, columns: int, handle_length: float = 2.4, **legend: Any) -> None:
    """Put a legend below all panels.

    Args:
        figure: the figure.
        columns: of the legend.
        handle_length: of the lines in it, in widths of a letter.
        legend: other options of matplotlib's legend.
    """
    figure.legend(
        loc="outside lower center",
        ncols=columns,
        fontsize=9,
        frameon=False,
        labelcolor=INK,
        handlelength=handle_length,
        **legend,
    )


def plain_axes(axes: Axes, *, grid: str | None) -> None:
    """Draw axes in ink, without the upper and right spine.

    Args:
        axes: the axes.
        grid: the axis ("x" or "y") across which faint lines help to read values; None for none.
    """
    axes.set_facecolor("none")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color((*_rgb(INK), 0.45))
    axes.tick_params(colors=INK, labelsize=9, length=3, width=0.8)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(INK)
        label.set_fontsize(9)
    if grid is not None:
        axes.grid(axis=grid, color=INK, alpha=0.12, linewidth=0.7)  # type: ignore[arg-type]
        axes.set_axisbelow(True)


def panel_title(axes: Axes, text: str) -> None:
    """Head a panel, at its left; lines are broken so that they fit the narrowest panels."""
    lines = textwrap.fill(text, _TITLE_WIDTH).replace("$", r"\$")
    axes.set_title(lines, loc="left", fontsize=9.5, color=INK, fontweight="bold", pad=8)


def _rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    return red, green, blue


def to_svg(figure: Figure) -> Markup:
    """Draw a figure as an SVG element for inlining in HTML.

    Equal figures give equal text. Identifiers begin with a digest of the content, so several SVGs can share
    a page. The background is transparent, and what is drawn in `INK` takes the page's text colour.

    Args:
        figure: the figure.

    Returns:
        The element, without XML declaration and metadata.
    """
    buffer = io.StringIO()
    canvas = FigureCanvasSVG(figure)
    canvas.print_svg(buffer, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :].rstrip()
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = _shortened(text)
    # matplotlib draws some identifiers at random unless a global setting forbids it; numbers need no global.
    numbers = {name: f"{index:x}" for index, name in enumerate(dict.fromkeys(re.findall(r'\bid="([^"]+)"', text)))}
    prefix = "f" + hashlib.sha256(_rename(text, numbers, "").encode()).hexdigest()[:6]
    return Markup(_rename(text, numbers, f"{prefix}-").replace(INK, "currentColor"))


def _shortened(svg: str) -> str:
    """Leave out indentation, names that nothing refers to, and what is finer than a hundredth of a point."""
    svg = re.sub(r">\s+<", "><", svg)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
    svg = re.sub(r' id="([^"]+)"', lambda match: match[0] if match[1] in used else "", svg)
    # Factors of scales are below 1, and stay as they are.
    svg = re.sub(r"(?<![\w.#])(-?[1-9]\d*\.\d\d)\d+", r"\1", svg)
    # What text is drawn of: a letter is moved along its line.
    svg = re.sub(r'<use xlink:href="([^"]+)" transform="translate\(([\d.]+) 0\)"/>', r'<use href="\1" x="\2"/>', svg)
    return svg.replace("xlink:href", "href")


def _rename(text: str, numbers: dict[str, str], prefix: str) -> str:
    return re.sub(
        r'(\bid="|href="#|url\(#)([^")]+)',
        lambda match: match[1] + prefix + numbers[match[2]],
        text,
    )


def to_png(figure: Figure, *, dpi: int = 150) -> bytes:
    """Draw a figure as a PNG file on white.

    Args:
        figure: the figure.
        dpi: pixels an inch.

    Returns:
        The file's bytes; equal figures give equal bytes.
    """
    buffer = io.BytesIO()
    figure.set_dpi(dpi)
    figure.set_facecolor("white")
    # `savefig` would draw twice, the first time for the layout alone.
    FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": None})
    return buffer.getvalue()
