import re
from concurrent.futures import ThreadPoolExecutor

from fedfisher_core.experiments.benchmark.figures import (
    accuracy_by_alpha_figure,
    accuracy_by_bits_figure,
    time_figure,
)
from fedfisher_core.reporting.drawing import INK, method_styles, to_png, to_svg
from tests.experiments.benchmark.samples import make_rows


def ids(svg: str) -> list[str]:
    return re.findall(r'\bid="([^"]+)"', svg)


def test_each_method_has_a_style_of_its_own_whatever_the_order() -> None:
    labels = [f"method {index}" for index in range(40)]
    styles = method_styles(labels)
    assert len({(style.colour, style.marker) for style in styles.values()}) == 41
    assert styles == method_styles(labels[::-1])
    assert styles["fedavg"].colour == INK


def test_svg_is_the_same_each_time_also_in_threads() -> None:
    rows = make_rows({"fedavg": 0.5, "kfac": 0.7}, alphas=(0.1, 0.3))
    expected = to_svg(accuracy_by_alpha_figure(rows))
    with ThreadPoolExecutor(2) as pool:
        drawn = list(pool.map(lambda _: to_svg(accuracy_by_alpha_figure(rows)), range(3)))
    assert drawn == [expected] * 3


def test_svgs_can_share_a_page() -> None:
    rows = make_rows({"fedavg": 0.5, "kfac": 0.7})
    svgs = [
        to_svg(accuracy_by_alpha_figure(rows)),
        to_svg(accuracy_by_bits_figure(rows)),
        to_svg(time_figure(rows)),
    ]
    names = [name for svg in svgs for name in ids(svg)]
    assert len(names) == len(set(names))
    for svg in svgs:
        used = set(re.findall(r'href="#([^"]+)"', svg)) | set(re.findall(r"url\(#([^)]+)\)", svg))
        assert used
        assert used <= set(ids(svg))


def test_svg_follows_the_text_colour_and_carries_no_metadata() -> None:
    svg = to_svg(time_figure(make_rows({"fedavg": 0.5})))
    assert svg.startswith("<svg")
    assert svg.endswith("</svg>")
    assert "currentColor" in svg
    assert INK not in svg
    assert "metadata" not in svg
    assert "DOCTYPE" not in svg


def test_png_is_the_same_each_time() -> None:
    rows = make_rows({"fedavg": 0.5})
    drawn = {to_png(time_figure(rows)) for _ in range(2)}
    assert len(drawn) == 1
    assert drawn.pop().startswith(b"\x89PNG")


def test_svg_is_no_finer_than_a_hundredth_of_a_point_and_keeps_its_scales() -> None:
    svg = to_svg(time_figure(make_rows({"fedavg": 0.5, "kfac": 0.7})))
    assert not re.search(r"[1-9]\d*\.\d{3}", svg)
    assert "scale(0.015625)" in svg
    assert not re.search(r">\s+<", svg)
    # A name is only there for what refers to it.
    assert set(ids(svg)) == set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
