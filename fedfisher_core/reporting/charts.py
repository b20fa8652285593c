"""Charts in Vega-Lite: their look, the kinds that pages share, and output as a part of a page and as PNG."""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import altair as alt
from markupsafe import Markup

from fedfisher_core.reporting.page import script_data

Chart = alt.LayerChart | alt.FacetChart

INK = "currentColor"
"""The colour of text and axes, which is the page's own, so that a chart follows light, dark and print."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#c98500", "#56b4e9", "#8c6bb1", "#a05a2c")
"""Colours that are distinct on white and on black (after Okabe and Ito), the clearest first."""

GREY = "#8b949e"
"""The colour of what stays in the background."""

_WIDTH, _HEIGHT, _ROW, _LABEL, _CHARACTER = 720, 330, 19, 13, 6.5
# Room for a method's name next to its line; the rest of a longer one is in its tooltip.
_NAME = 250
# Ink of this opacity has a contrast above 4.5 on white and on black.
_MUTED = 0.7
_HIDDEN = "hidden"
# Vega would write some numbers with an exponent.
_PLAIN = "format(datum.value, '~r')"
_FONT = "system-ui, 'Segoe UI', 'Liberation Sans', sans-serif"
_LOOK: dict[str, Any] = {
    "aria": False,
    "background": "transparent",
    "font": _FONT,
    # A page's script gives the width; the height of the panel stays, since labels are placed by it.
    "autosize": {"type": "fit-x", "contains": "padding"},
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK,
        "titleColor": INK,
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "labelLimit": 320,
        "domainColor": INK,
        "domainOpacity": 0.4,
        "tickColor": INK,
        "tickOpacity": 0.4,
        "gridColor": INK,
        "gridOpacity": 0.12,
    },
    "title": {"color": INK, "anchor": "start", "fontSize": 13, "offset": 10},
    "legend": {"labelColor": INK, "titleColor": INK, "orient": "top", "title": None, "labelFontSize": 12},
    "text": {"color": INK, "fontSize": 12},
}


def _finished(chart: Chart) -> dict[str, Any]:
    # Methods that a reader hides leave all charts.
    shown = chart.add_params(alt.param(name=_HIDDEN, value=[])).transform_filter(
        f"indexof({_HIDDEN}, datum.method) < 0"
    )
    spec = shown.to_dict()
    # Altair numbers views in the order in which a process makes them.
    spec = {name: value for name, value in spec.items() if name != "config"} | {"config": _LOOK}
    for layer in spec.get("layer", []):
        layer.pop("name", None)
    return spec


def to_html(chart: Chart) -> Markup:
    """Write a chart as a drawing, and as the specification from which a page's script draws it again.

    Screen readers skip the drawing: the figure that a page puts it into is named, and says where its numbers are.
    """
    import vl_convert

    spec = _finished(chart)
    svg = vl_convert.vegalite_to_svg(spec)
    # Identifiers hold a number that grows over a process, and several charts share a page.
    mark = hashlib.sha256(json.dumps(spec).encode()).hexdigest()[:8]
    names = {name: f"c{mark}-{place}" for place, name in enumerate(dict.fromkeys(re.findall(r'\bid="([^"]+)"', svg)))}
    svg = re.sub(r'(\bid="|url\(#)([^")]+)', lambda match: match[1] + names[match[2]], svg)
    svg = re.sub(r' (?:aria-hidden|pointer-events|stroke-miterlimit|xmlns:xlink)="[^"]*"', "", svg)
    svg = re.sub(r'<path class="(?:background|foreground)"[^>]*/>|<g></g>', "", svg)
    svg = re.sub(r' class="mark-[^"]*"', "", svg)
    svg = re.sub(r' font-family="[^"]*"', "", svg).replace("<svg ", f'<svg font-family="{_FONT}" ', 1)
    # Coordinates stand within tags, and names between them.
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0]), svg)
    return Markup('<div class="plot" aria-hidden="true">{}</div><script type="application/json">{}</script>').format(
        Markup(svg), script_data(spec)
    )


def to_png(chart: Chart) -> bytes:
    """Draw a chart as a PNG file on white; equal charts give equal bytes."""
    import vl_convert

    spec = _finished(chart)
    spec["config"] = spec["config"] | {"background": "white"}
    return vl_convert.vegalite_to_png(spec, scale=2)


@dataclass(frozen=True)
class Dot:
    """A line of a dot plot.

    Args:
        method: identifies the line.
        mean: in the units of the axis.
        low: lower end of the interval; None without one.
        group: what it belongs to; the first group is in colour.
    """

    method: str
    name: str
    mean: float
    low: float | None
    high: float | None
    group: str


def dot_plot(dots: Sequence[Dot], axis: str) -> Chart:
    """Draw means with intervals, a line each in the order that is given, groups apart under their names."""
    groups = list(dict.fromkeys(one.group for one in dots))
    values: list[dict[str, Any]] = []
    for group in groups:
        # The first group needs no name: it is what the chart is about.
        if group != groups[0]:
            values.append({"name": f"{group}:"})
        values += [asdict(one) for one in dots if one.group == group]
    order = [value["name"] for value in values]
    colour = alt.Color("group:N", scale=alt.Scale(domain=groups, range=[COLOURS[0], COLOURS[1], GREY]), legend=None)
    base = alt.Chart().encode(
        y=alt.Y(
            "name:N",
            sort=order,
            title=None,
            axis=alt.Axis(
                ticks=False,
                domain=False,
                labelFontWeight=alt.condition("test(/:$/, datum.value)", alt.value("bold"), alt.value("normal")),
            ),
        ),
    )
    tooltip = [alt.Tooltip("name:N"), *(alt.Tooltip(f"{one}:Q", format=".2f") for one in ("mean", "low", "high"))]
    scale = alt.Scale(zero=False, nice=True)
    x = alt.X("low:Q", title=axis, scale=scale, axis=alt.Axis(tickCount=8))
    rule = base.mark_rule(strokeWidth=2).encode(x=x, x2="high:Q", color=colour)
    point = base.mark_point(filled=True, size=70, opacity=1).encode(x="mean:Q", color=colour, tooltip=tooltip)
    return alt.layer(rule, point, data=alt.Data(values=values)).properties(width=_WIDTH - 200, height=alt.Step(_ROW))


@dataclass(frozen=True)
class Point:
    """A point of a line.

    Args:
        method: identifies the line.
        y: in the units of the axis.
        low: lower end of its bar or band; None without one.
        dash: a part of the line that is not joined with others.
    """

    method: str
    name: str
    x: float | str
    y: float
    low: float | None = None
    high: float | None = None
    dash: str = ""


def line_chart(
    points: Sequence[Point],
    *,
    axes: tuple[str, str],
    title: str = "",
    logarithmic: bool = False,
    colours: dict[str, str] | None = None,
) -> Chart:
    """Draw lines with their names at their ends, at most eight of them in colour.

    Args:
        points: by rising x; a line needs no point at each x.
        axes: titles of the axis across and of that upwards.
        logarithmic: whether both axes are.
        colours: colour by method; None for the methods that end highest.
    """
    last = {one.method: one for one in points}
    names = {one.method: one.name for one in points}
    chosen = coloured(sorted(last, key=lambda method: -last[method].y)) if colours is None else colours
    height = max(_HEIGHT, _LABEL * (len(last) + 1))
    ends = [end for one in points for end in (one.low, one.y, one.high) if end is not None]
    domain = _domain(ends, logarithmic=logarithmic)
    upwards = alt.Scale(domain=domain, nice=False, type="log" if logarithmic else "linear")
    named = isinstance(points[0].x, str)
    xs: list[Any] = list(dict.fromkeys(one.x for one in points))
    if named:
        # In two lines where these fit side by side, else upright.
        longest = max(len(part) for x in xs for part in x.split(", "))
        upright = len(xs) * (longest + 1) * _CHARACTER > _WIDTH / 2
        expression = "datum.label" if upright else "split(datum.label, ', ')"
        axis = alt.Axis(labelAngle=-90 if upright else 0, labelExpr=expression)
        x = alt.X("x:N", sort=xs, title=axes[0] or None, axis=axis, scale=alt.Scale(type="point", padding=0.5))
    else:
        scale = alt.Scale(type="log", nice=False) if logarithmic else alt.Scale(nice=False, zero=False)
        axis = alt.Axis(values=xs, labelExpr=_PLAIN, labelOverlap=True) if logarithmic else alt.Axis(grid=False)
        x = alt.X("x:Q", title=axes[0], scale=scale, axis=axis)
    colour = alt.Color("method:N", scale=alt.Scale(domain=list(chosen), range=list(chosen.values())), legend=None)
    shade = alt.condition("datum.front", colour, alt.value(GREY))
    encoded: dict[str, Any] = {"x": x, "detail": [alt.Detail("method:N"), alt.Detail("dash:N")]}
    y = alt.Y("y:Q", title=axes[1], scale=upwards)
    if named:
        # Neighbours stand a few pixels apart, so that their bars do not cover each other.
        encoded["xOffset"] = alt.XOffset("place:Q", scale=alt.Scale(domain=[-1, 1], range=[-14, 14]))
    place = {method: 2 * index / max(len(last) - 1, 1) - 1 for index, method in enumerate(sorted(last))}
    values = [
        {name: value for name, value in asdict(one).items() if value not in (None, "")}
        | {"front": one.method in chosen}
        | ({"place": round(place[one.method], 2)} if named else {})
        for one in points
    ]
    tooltip = [alt.Tooltip("name:N"), alt.Tooltip("x:N" if named else "x:Q"), alt.Tooltip("y:Q", format=".4~g")]
    base = alt.Chart().encode(**encoded)
    lines = base.mark_line(strokeWidth=1.6).encode(
        y=y, color=shade, strokeOpacity=alt.condition("datum.front", alt.value(1), alt.value(0.45))
    )
    spread = (
        base.mark_rule(strokeWidth=1.2).encode(y="low:Q", y2="high:Q", color=shade)
        if named
        else base.mark_area(opacity=0.13).encode(y="low:Q", y2="high:Q", color=shade)
    ).transform_filter("datum.front && isValid(datum.low)")
    dots = base.mark_point(filled=True, size=28, opacity=1).encode(y="y:Q", color=shade, tooltip=tooltip)
    heights = _apart(
        {method: _fraction(one.y, domain, logarithmic=logarithmic) for method, one in last.items()}, height
    )
    labels = [
        {"method": method, "name": names[method], "down": height * (1 - heights[method]), "front": method in chosen}
        for method in last
    ]
    # A colour that is distinct on white and on black is too pale for text on one of them.
    end = alt.Chart().encode(y=alt.Y("down:Q", scale=None))
    key = end.mark_point(shape="stroke", size=60, strokeWidth=2.5).encode(
        x=alt.value(alt.ExprRef("width + 14")), color=shade
    )
    text = end.mark_text(align="left", baseline="middle", limit=_NAME).encode(
        x=alt.value(alt.ExprRef("width + 22")),
        text="name:N",
        tooltip="name:N",
        opacity=alt.condition("datum.front", alt.value(1), alt.value(_MUTED)),
    )
    named_ends = alt.layer(key, text, data=alt.Data(values=labels)).transform_filter(
        f"indexof({_HIDDEN}, datum.method) < 0"
    )
    layers = [*([lines] if len(xs) > 1 else []), spread, *([dots] if named or len(xs) <= 20 else []), named_ends]
    return alt.layer(*layers, data=alt.Data(values=values)).properties(
        width=_WIDTH - 60, height=height, **({"title": title} if title else {})
    )


def coloured(methods: Iterable[str]) -> dict[str, str]:
    """Give the first eight of some methods a colour each."""
    return dict(zip(dict.fromkeys(methods), COLOURS, strict=False))


@dataclass(frozen=True)
class Trade:
    """A method in a chart of what it costs and what it gives."""

    method: str
    name: str
    cost: float
    gain: float


def on_front(trades: Sequence[Trade]) -> list[Trade]:
    """Choose those that no other beats in one of cost and gain without being worse in the other, by rising cost."""
    front: list[Trade] = []
    for one in sorted(trades, key=lambda one: (one.cost, -one.gain)):
        if not front or one.gain > front[-1].gain:
            front.append(one)
    return front


def trade_off_chart(trades: Sequence[Trade], *, axes: tuple[str, str], logarithmic_cost: bool) -> Chart:
    """Draw gains against costs; those on the Pareto front are joined and named.

    Args:
        axes: titles of the axis of costs and of that of gains.
    """
    front = on_front(trades)
    domain = _domain([one.gain for one in trades], logarithmic=False)
    heights = _apart({one.method: _fraction(one.gain, domain, logarithmic=False) for one in front}, _HEIGHT)
    scale = alt.Scale(type="log") if logarithmic_cost else alt.Scale(zero=True)
    x = alt.X("cost:Q", title=axes[0], scale=scale, axis=alt.Axis(tickCount=5, labelExpr=_PLAIN, labelOverlap=True))
    y = alt.Y("gain:Q", title=axes[1], scale=alt.Scale(domain=domain, nice=False))
    ahead = {one.method for one in front}
    values = [asdict(one) | {"front": one.method in ahead} for one in trades]
    shade = alt.condition("datum.front", alt.value(COLOURS[0]), alt.value(GREY))
    tooltip = [alt.Tooltip("name:N"), alt.Tooltip("cost:Q", format=".3~g"), alt.Tooltip("gain:Q", format=".2f")]
    base = alt.Chart().encode(x=x, y=y)
    dots = base.mark_point(filled=True, size=55, opacity=1).encode(color=shade, tooltip=tooltip)
    steps = base.mark_line(interpolate="step-after", color=COLOURS[0], strokeDash=[3, 3]).transform_filter(
        "datum.front"
    )
    costs = [math.log(one.cost) if logarithmic_cost else one.cost for one in trades]
    middle = (min(costs) + max(costs)) / 2 if logarithmic_cost else max(costs) / 2
    labels = [
        {"method": one.method, "name": one.name, "cost": one.cost, "down": _HEIGHT * (1 - heights[one.method])}
        | {"right": (math.log(one.cost) if logarithmic_cost else one.cost) > middle}
        for one in front
    ]
    names = alt.Chart(alt.Data(values=labels)).encode(x=x, y=alt.Y("down:Q", scale=None), text="name:N")
    # Names stand towards the middle, so that none leaves the chart.
    shown = f"indexof({_HIDDEN}, datum.method) < 0"
    text = [
        names.mark_text(align="left", baseline="bottom", dx=6, dy=-5).transform_filter(f"!datum.right && {shown}"),
        names.mark_text(align="right", baseline="bottom", dx=-6, dy=-5).transform_filter(f"datum.right && {shown}"),
    ]
    return alt.layer(steps, dots, *text, data=alt.Data(values=values)).properties(width=_WIDTH // 2, height=_HEIGHT)


def heat_map(cells: Sequence[tuple[str, str, float, str]], *, axes: tuple[str, str], title: str) -> Chart:
    """Draw a matrix, darker cells for more.

    Args:
        axes: what columns and lines are.
        cells: name of the column, name of the line, shade from 0 to 1, and text.
    """
    values = [dict(zip(("column", "line", "shade", "text"), cell, strict=True)) for cell in cells]
    columns, lines = list(dict.fromkeys(cell[0] for cell in cells)), list(dict.fromkeys(cell[1] for cell in cells))
    base = alt.Chart().encode(
        x=alt.X("column:N", sort=columns, title=axes[0], axis=alt.Axis(labelOverlap=True, labelAngle=-40)),
        y=alt.Y("line:N", sort=lines, title=axes[1], axis=alt.Axis(labelOverlap=True)),
    )
    squares = base.mark_rect(color=COLOURS[0]).encode(opacity=alt.Opacity("shade:Q", scale=None))
    written = base.mark_text(fontSize=11).encode(
        text="text:N", color=alt.condition("datum.shade > 0.7", alt.value("white"), alt.value(INK))
    )
    roomy = len(columns) <= 12 and len(lines) <= 20
    return alt.layer(squares, *([written] if roomy else []), data=alt.Data(values=values)).properties(
        width=alt.Step(38 if roomy else max(7, 720 / len(columns))),
        height=alt.Step(21 if roomy else max(4, 640 / len(lines))),
        title=title,
    )


def _domain(values: Sequence[float], *, logarithmic: bool) -> list[float]:
    """Choose the ends of an axis so that all values are well inside."""
    low, high = min(values), max(values)
    if logarithmic:
        factor = max((high / low) ** 0.05, 1.05)
        return [low / factor, high * factor]
    margin = max(0.06 * (high - low), 0.01 * abs(high), 1e-6)
    return [low - margin, high + margin]


def _fraction(value: float, domain: Sequence[float], *, logarithmic: bool) -> float:
    low, high, value = (math.log(one) if logarithmic else one for one in (*domain, value))
    return (value - low) / (high - low)


def _apart(fractions: dict[str, float], height: float) -> dict[str, float]:
    """Move labels along a height, from 0 to 1, by as little as keeps them a line apart and inside."""
    gap = _LABEL / height
    order = sorted(fractions, key=lambda one: fractions[one])
    placed: list[float] = []
    for one in order:
        placed.append(max(fractions[one], placed[-1] + gap if placed else 0.0))
    limit = 1.0
    for index in range(len(placed) - 1, -1, -1):
        placed[index] = min(placed[index], limit)
        limit = placed[index] - gap
    return dict(zip(order, placed, strict=True))
