from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.benchmark.answer import standings
from fedfisher_core.experiments.benchmark.figures import (
    Grid,
    confusion_grid,
    means_chart,
    partition_grid,
    settings_charts,
    trade_off_charts,
)
from fedfisher_core.experiments.benchmark.rows import compared_seconds
from fedfisher_core.experiments.benchmark.summary import summarise
from fedfisher_core.reporting.charts import Chart, to_html
from tests.experiments.benchmark.samples import make_row, make_rows
from tests.reporting.pages import Page


def values(chart: Chart) -> list[dict[str, Any]]:
    (drawn,) = Page(to_html(chart)).drawn
    return drawn


def test_means_are_over_settings_in_per_cent_with_the_interval_over_seeds() -> None:
    rows = [*make_rows({"fedavg": 0.5}, alphas=(0.1, 0.3)), make_row("dense", accuracy=0.2)]
    fedavg, dense = values(means_chart(standings(summarise(rows))))
    assert fedavg["mean"] == 51.0
    # Seeds differ by one point: 51 ± 4.303 / sqrt(3).
    assert [round(fedavg[end], 2) for end in ("low", "high")] == [48.52, 53.48]
    assert dense["name"] == "DENSE (1 of 2 settings)"
    assert dense["low"] is None


def test_a_point_is_the_middle_of_its_interval() -> None:
    # The third seed of one setting is in no interval over both.
    accuracies = {0.1: (0.90, 0.91, 0.10), 0.3: (0.50, 0.51)}
    rows = [
        make_row("fedavg", alpha=alpha, seed=seed, accuracy=accuracy)
        for alpha, each in accuracies.items()
        for seed, accuracy in enumerate(each)
    ]
    (fedavg,) = values(means_chart(standings(summarise(rows))))
    assert fedavg["mean"] == pytest.approx((fedavg["low"] + fedavg["high"]) / 2)


def test_groups_of_settings_have_a_chart_each_and_those_that_are_alone_share_one() -> None:
    rows = [
        *make_rows({"fedavg": 0.5, "kfac": 0.6}, alphas=(0.1, 0.3)),
        *(make_row(dataset=dataset) for dataset in ("svhn", "cifar10")),
    ]
    summaries = summarise(rows)
    charts = settings_charts(summaries, standings(summaries))
    places = [{one["x"] for one in values(chart) if "x" in one} for chart in charts]
    assert places == [{"α = 0.1", "α = 0.3"}, {"svhn", "cifar10"}]
    assert settings_charts(summaries[:1], standings(summaries[:1])) == []


def test_costs_are_drawn_of_methods_that_cost_something() -> None:
    rows = make_rows({"fedavg": 0.5, "kfac": 0.6, "regmean": 0.55})
    rows += [replace(row, upload_bits=0) for row in make_rows({"dense": 0.9})]
    bits, seconds = trade_off_charts(standings(summarise(rows)), compared_seconds(rows))
    assert {one["method"] for one in values(bits) if "gain" in one} == {"fedavg", "kfac", "regmean"}
    assert {one["method"] for one in values(seconds) if "gain" in one} == {"fedavg", "kfac", "regmean", "dense"}
    two = [row for row in rows if row.method in ("fedavg", "kfac")]
    assert trade_off_charts(standings(summarise(two)), compared_seconds(rows)) == []


def test_a_method_that_lacks_a_seed_is_in_no_chart_of_costs() -> None:
    rows = make_rows({"fedavg": 0.5, "kfac": 0.6, "regmean": 0.55, "dense": 0.9})
    rows.remove(next(row for row in rows if row.method == "dense"))
    bits, seconds = trade_off_charts(standings(summarise(rows)), compared_seconds(rows))
    for chart in (bits, seconds):
        assert {one["method"] for one in values(chart) if "gain" in one} == {"fedavg", "kfac", "regmean"}


def texts(grid: Grid) -> list[str]:
    return [text for name, cells, total in grid.lines for text in (name, *(text for text, _ in cells), total)]


def test_a_partition_shows_counts_and_totals() -> None:
    grid = partition_grid(np.array([[12, 0, 3], [1500, 20, 12345]]), ["a", "b", "c"], "title")
    assert {"12", "3", "1500", "20", "12k", "15", "13\u2009865"} <= set(texts(grid))
    assert (grid.title, grid.sums[0], list(grid.columns[1])) == ("title", "examples", ["a", "b", "c"])
    # One is a client's number.
    assert texts(grid).count("0") == 1


def test_a_darker_cell_holds_more_and_an_empty_one_has_no_colour() -> None:
    ((first, empty, most),) = partition_grid(np.array([[1, 0, 100]]), ["a", "b", "c"], "title").shades
    assert empty == 0 < first < most == 1


def test_a_confusion_shows_shares_of_the_true_class() -> None:
    grid = confusion_grid(np.array([[3, 1], [0, 0]]), ["a", "b"], "title")
    assert {"75", "25", "75.0", "–"} <= set(texts(grid))
    assert (grid.rows[0], grid.columns[0]) == ("true class", "predicted class")


def test_of_very_many_clients_a_picture_says_how_many_hold_how_much() -> None:
    counts = np.zeros((701, 3), int)
    counts[:100, 0], counts[100:107, 0], counts[107, 0] = 1, 3, 5
    counts[:50, 1] = 7
    grid = partition_grid(counts, ["a", "b", "c"], "title", levels=["level"] * 701)
    assert grid.title == "title: how many of 701 clients hold how many"
    assert grid.rows[1] == ["0", "1", "2–3", "4–7", "8–15"]
    held = {"a": ["593", "100", "7", "1", ""], "b": ["651", "", "", "50", ""], "c": ["701", "", "", "", ""]}
    assert dict(zip("abc", map(list, zip(*grid.cells, strict=True)), strict=True)) == held
    # A client with 1 of the one class and 7 of the other has 8.
    assert grid.sums[1] == ["593", "50", "7", "1", "50"]
    assert not any("level" in text for text in texts(grid))


def test_a_grid_is_drawn_as_png() -> None:
    counts = np.random.default_rng(0).integers(0, 9000, (5, 10))
    names = [f"<b> {index}" for index in range(10)]
    first, second = (partition_grid(counts, names, "alpha < 1 & $x$").png() for _ in range(2))
    assert first == second
    assert first.startswith(b"\x89PNG")


def test_a_partition_without_examples_can_be_drawn() -> None:
    assert partition_grid(np.zeros((2, 2), int), ["a", "b"], "title").shades == [[0, 0], [0, 0]]


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


def test_the_level_of_a_client_stands_next_to_its_number() -> None:
    grid = partition_grid(np.eye(2, dtype=int), ["a", "b"], "title", levels=["as they are", "σ = 0.5"])
    assert {"0 (as they are)", "1 (σ = 0.5)"} <= set(texts(grid))
    with pytest.raises(InputError, match="levels has 3 names; it needs one for each of the 2 clients"):
        partition_grid(np.eye(2, dtype=int), ["a", "b"], "title", levels=["x", "y", "z"])
