import io
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from PIL import Image

from fedfisher_core.reporting.charts import (
    GREY,
    Dot,
    Point,
    Trade,
    dot_plot,
    line_chart,
    on_front,
    to_html,
    to_png,
    trade_off_chart,
)
from tests.reporting.pages import Page

TWELVE = [f"method_{letter}" for letter in "abcdefghijkl"]
LINES = [
    Point(method, method, x, 50 + place + offset, 49 + place, 52 + place)
    for place, method in enumerate(TWELVE)
    for x, offset in (("α = 0.1", 0.0), ("α = 0.5", -place))
]
CHARTS = {
    "dots": dot_plot([Dot("a", "A", 1.0, 0.5, 1.5, "One"), Dot("b", "B", 2.0, None, None, "Other")], "accuracy"),
    "lines": line_chart(LINES, axes=("", "accuracy"), title="<b>a title</b>"),
    "logarithms": line_chart([Point("a", "A", x, 1 / x) for x in (1, 2, 4)], axes=("x", "y"), logarithmic=True),
    "costs": trade_off_chart(
        [Trade("a", "A", 1.0, 1.0), Trade("b", "B", 2.0, 2.0)], axes=("s", "%"), logarithmic_cost=True
    ),
    "point": line_chart([Point("a", "A", 1, 1.0)], axes=("x", "y")),
}


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_is_a_drawing_in_the_text_s_colour_with_its_specification(name: str) -> None:
    html = to_html(CHARTS[name])
    page = Page(html)
    assert page.charts[0]["config"]["background"] == "transparent"
    assert "currentColor" in html
    assert "<b>" not in html
    assert html.index("<svg") < html.index("<script")
    # Hidden methods leave every chart.
    assert [one["name"] for one in page.charts[0]["params"]] == ["hidden"]


def test_equal_charts_give_equal_text_also_in_threads() -> None:
    expected = [to_html(chart) for chart in CHARTS.values()]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(to_html, CHARTS.values())) == expected


def test_a_png_is_the_same_each_time_and_on_white() -> None:
    (png,) = {to_png(CHARTS["dots"]) for _ in range(2)}
    assert Image.open(io.BytesIO(png)).convert("RGB").getpixel((0, 0)) == (255, 255, 255)


def test_at_most_eight_lines_have_a_colour_and_no_name_covers_another() -> None:
    (spec,) = Page(to_html(CHARTS["lines"])).charts
    (values,) = Page(to_html(CHARTS["lines"])).drawn
    labels = [one for one in values if "down" in one]
    assert {one["name"] for one in labels} == set(TWELVE)
    assert sum(one["front"] for one in labels) == 8
    assert all(lower - upper >= 12.9 for upper, lower in pairwise(sorted(one["down"] for one in labels)))
    assert GREY in str(spec)


@pytest.mark.parametrize(("split", "angle"), [("paper", 0), ("dirichlet_client", -90)])
def test_labels_of_settings_stand_upright_where_they_would_cover_each_other(split: str, angle: int) -> None:
    settings = [f"{split}, α = {alpha}" for alpha in (0.05, 0.075, 0.1, 0.3, 0.5)]
    chart = line_chart([Point("a", "A", setting, 1.0) for setting in settings], axes=("", "accuracy"))
    (spec,) = Page(to_html(chart)).charts
    (found,) = {layer["encoding"]["x"]["axis"]["labelAngle"] for layer in spec["layer"] if "encoding" in layer}
    assert found == angle


def test_the_front_has_what_no_other_beats() -> None:
    trades = [Trade(name, name, *at) for name, at in {"a": (1, 1), "b": (2, 1), "c": (3, 2), "d": (4, 1.5)}.items()]
    assert [one.method for one in on_front(trades)] == ["a", "c"]


def test_groups_stand_apart_under_their_names() -> None:
    svg = to_html(CHARTS["dots"])
    names = re.findall(r">([^<>]+)</text>", svg)
    assert [name for name in names if name in {"A", "B", "Other:"}] == ["A", "Other:", "B"]


def test_numbers_in_names_keep_their_digits() -> None:
    points = [Point(name, name, x, 1.23456) for name in ("fedavg, lr 0.0032", "b") for x in ("α = 0.075", "α = 0.1")]
    page = to_html(line_chart(points, axes=("", "accuracy")))
    drawing = page[: page.index("<script")]
    assert "0.075" in drawing
    assert "fedavg, lr 0.0032" in drawing
    assert not re.search(r'="[^"]*\d\.\d{3}', drawing)


def test_a_long_name_leaves_room_for_the_lines() -> None:
    points = [Point(one, one, x, 50.0) for one in ("a long name " * 8, "b") for x in ("α = 0.1", "α = 0.5")]
    drawing = to_html(line_chart(points, axes=("", "accuracy"))).partition("<script")[0]
    places = [re.search(rf"<text[^>]*translate\(([\d.]+)[^>]*>{x}<", drawing) for x in ("α = 0.1", "α = 0.5")]
    first, last = (float(place[1]) for place in places if place is not None)
    assert last - first > 150
