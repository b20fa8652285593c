import base64
import io
from collections.abc import Callable
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from fedfisher_core.errors import InputError
from fedfisher_core.experiments.benchmark.grids import Grid, confusion_grid, partition_grid

SVG = "{http://www.w3.org/2000/svg}"


def parsed(grid: Grid) -> ElementTree.Element:
    return ElementTree.fromstring(grid.file())


def texts(grid: Grid) -> list[str]:
    return ["".join(one.itertext()) for one in parsed(grid).iter(f"{SVG}text")]


def opacities(grid: Grid) -> list[int]:
    (image,) = parsed(grid).iter(f"{SVG}image")
    png = base64.b64decode(image.attrib["href"].removeprefix("data:image/png;base64,"))
    return list(Image.open(io.BytesIO(png)).getdata(band=3))


def test_a_partition_shows_counts_and_totals() -> None:
    grid = partition_grid(np.array([[12, 0, 3], [1500, 20, 12345]]), ["a", "b", "c"], "title")
    assert {"title", "12", "3", "1500", "20", "12k", "15", "13\u2009865", "examples"} <= set(texts(grid))
    # One is a client's number.
    assert texts(grid).count("0") == 1


def test_a_darker_cell_holds_more_and_an_empty_one_has_no_colour() -> None:
    first, empty, most = opacities(partition_grid(np.array([[1, 0, 100]]), ["a", "b", "c"], "title"))
    assert empty == 0 < first < most == 255


def test_a_confusion_shows_shares_of_the_true_class() -> None:
    grid = confusion_grid(np.array([[3, 1], [0, 0]]), ["a", "b"], "title")
    assert {"75", "25", "75.0", "–", "true class", "predicted class"} <= set(texts(grid))


def test_of_very_many_clients_a_picture_says_how_many_hold_how_much() -> None:
    counts = np.zeros((401, 3), int)
    counts[:100, 0], counts[100:107, 0], counts[107, 0] = 1, 3, 5
    counts[:50, 1] = 7
    grid = partition_grid(counts, ["a", "b", "c"], "title", levels=["level"] * 401)
    assert grid.title == "title: how many of 401 clients hold how many"
    assert grid.rows[1] == ["0", "1", "2–3", "4–7", "8–15"]
    held = {"a": ["293", "100", "7", "1", ""], "b": ["351", "", "", "50", ""], "c": ["401", "", "", "", ""]}
    assert dict(zip("abc", map(list, zip(*grid.cells, strict=True)), strict=True)) == held
    # A client with 1 of the one class and 7 of the other has 8.
    assert grid.sums[1] == ["293", "50", "7", "1", "50"]
    assert not any("level" in text for text in texts(grid))


@pytest.mark.parametrize(("clients", "classes"), [(5, 10), (50, 10), (5, 100), (400, 100), (10_000, 100)])
def test_rows_have_room_and_the_picture_fits_a_page(clients: int, classes: int) -> None:
    counts = np.random.default_rng(0).integers(0, 9000, (clients, classes))
    grid = parsed(partition_grid(counts, [f"class number {index}" for index in range(classes)], "title"))
    heights = [
        float(one.attrib["y"])
        for one in grid.iter(f"{SVG}text")
        if one.attrib.get("text-anchor") == "end" and "y" in one.attrib
    ]
    assert np.diff(heights).min() >= float(grid.attrib["font-size"])
    assert len(heights) <= 50
    assert float(grid.attrib["width"]) <= 960


def test_names_are_text_and_not_markup() -> None:
    grid = partition_grid(np.array([[1, 2]]), ["<b>", "a & b"], "alpha < 1 & $x$")
    assert {"<b>", "a & b", "alpha < 1 & $x$"} <= set(texts(grid))


def test_equal_grids_give_equal_text_and_a_page_colours_them() -> None:
    first, second = (partition_grid(np.eye(2, dtype=int), ["a", "b"], "title") for _ in range(2))
    assert first.svg() == second.svg()
    assert "background" not in first.svg()
    assert b"background: white" in first.file()


def test_a_partition_without_examples_can_be_drawn() -> None:
    assert opacities(partition_grid(np.zeros((2, 2), int), ["a", "b"], "title")) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("make", "matrix"),
    [
        (partition_grid, np.ones((2, 3), int)),
        (partition_grid, np.array([[1, -1]])),
        (partition_grid, np.empty((0, 2), int)),
        (confusion_grid, np.ones((3, 2), int)),
    ],
)
def test_matrices_that_do_not_fit_are_refused(make: Callable[..., Grid], matrix: np.ndarray) -> None:
    with pytest.raises(InputError):
        make(matrix, ["a", "b"], "title")


def test_the_level_of_a_client_stands_beside_its_number() -> None:
    grid = partition_grid(np.eye(2, dtype=int), ["a", "b"], "title", levels=["as they are", "σ = 0.5"])
    assert {"0 (as they are)", "1 (σ = 0.5)"} <= set(texts(grid))
    with pytest.raises(InputError, match="levels has 3 names; it needs one for each of the 2 clients"):
        partition_grid(np.eye(2, dtype=int), ["a", "b"], "title", levels=["x", "y", "z"])
