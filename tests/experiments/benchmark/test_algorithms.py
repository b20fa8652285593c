"""Algorithms over rounds: as numbers, as curves and on a page."""

import pytest

from fedfisher_core.experiments.benchmark.algorithms import algorithm_of, as_algorithms, by_algorithm
from fedfisher_core.experiments.benchmark.figures import rounds_charts
from fedfisher_core.experiments.benchmark.rows import RoundPoint, Row
from fedfisher_core.experiments.benchmark.summary import Setting, summarise
from fedfisher_core.reporting.charts import to_html
from tests.experiments.benchmark.samples import make_row, make_rows, render
from tests.reporting.pages import Page


def rows_of(method: str, *lasts: float, **changes: object) -> list[Row]:
    """Rows of two rounds, the first at a tenth; each round costs 8 MB up and 4 down."""
    return [
        make_row(
            method,
            num_rounds=2,
            seed=seed,
            accuracy=last,
            curve=[
                RoundPoint(number, accuracy, 1.0, 0.0, 0.0, 64_000_000 * number, 32_000_000 * number)
                for number, accuracy in ((1, 0.1), (2, last))
            ],
            **changes,
        )
        for seed, last in enumerate(lasts)
    ]


ROWS = [
    *rows_of("fedavg", 0.5, 0.7),
    *rows_of("fedavg", 0.6, 0.9, objective="moon"),
    *rows_of("fedavg", 0.55, 0.6, server_optimiser="fedadam"),
    *rows_of("fedavg", 0.4, 0.2, server_optimiser="fedadam", alpha=0.5),
]


def test_algorithms_are_compared_where_only_objective_and_server_optimiser_differ() -> None:
    table, other = by_algorithm(summarise(as_algorithms(ROWS)))
    assert [one.name for one in table.algorithms] == ["fedavg, moon", "fedavg", "fedavg, fedadam"]
    moon, plain, adam = table.algorithms
    assert (moon.summary.best, plain.summary.best, plain.summary.difference) == (True, False, None)
    assert moon.summary.difference is not None
    assert moon.summary.difference.mean == pytest.approx(0.15)
    assert adam.summary.difference is not None
    assert adam.summary.difference.mean == pytest.approx(-0.025)
    assert (moon.last.round, moon.last.upload_bits, moon.last.bits) == (2, 128_000_000, 192_000_000)
    assert moon.points[0].accuracy.mean == pytest.approx(0.1)
    # Without plain FedAvg there is nothing to subtract.
    assert [(one.name, one.summary.difference) for one in other.algorithms] == [("fedavg, fedadam", None)]


def test_one_round_has_no_algorithms() -> None:
    assert by_algorithm(summarise(make_rows({"fedavg": 0.5}))) == []


def test_curves_have_a_point_a_round_and_a_band_over_seeds() -> None:
    charts = [
        [one for one in Page(to_html(chart)).drawn[0] if "x" in one]
        for chart in rounds_charts(by_algorithm(summarise(as_algorithms(ROWS))))
    ]
    by_round, by_bits = ([one for one in points if one["method"] == points[0]["method"]] for points in charts[:2])
    assert [one["x"] for one in by_round] == [1, 2]
    assert [one["x"] for one in by_bits] == pytest.approx([12, 24])
    assert [one["y"] for one in by_round] == pytest.approx([10, 75])
    assert by_round[1]["low"] < 75 < by_round[1]["high"]


def test_rows_of_one_round_keep_their_objective() -> None:
    rows = [make_row(objective="moon"), make_row(objective="moon", num_rounds=2)]
    one, several = as_algorithms(rows)
    assert one == rows[0]
    assert (several.method, several.objective, several.accuracy) == ("fedavg, moon", "plain", rows[1].accuracy)


def test_a_cell_is_renamed_as_its_rows_are() -> None:
    for row in ROWS:
        assert algorithm_of(Setting.of(row), row.method) == (Setting.of(one := as_algorithms([row])[0]), one.method)


def test_a_page_shows_rounds_where_there_are_several() -> None:
    page = Page(render(ROWS))
    for part in ("Round by round", "fedavg, moon", "After round 2, %", "+15.00", "fedavg, fedadam"):
        assert part in page.text
    one_round = Page(render(make_rows({"fedavg": 0.5}))).text
    assert "Round by round" not in one_round
    assert "an algorithm is compared" not in one_round


def test_algorithms_of_a_page_are_tested_against_each_other() -> None:
    page = Page(render(ROWS))
    assert "No method leads" in page.text
    assert "an algorithm is compared as a method of its own" in page.text
    # Three of two seeds meet where alpha is 0.1; where it is 0.5, one stands alone.
    assert "of 3 tests of two methods each, corrected for their number (Holm), none finds a difference" in page.text
    assert "objective moon" not in page.text


def test_a_failed_algorithm_is_named_in_its_line() -> None:
    failed = {(Setting.of(rows_of("fedfish", 0.5, objective="moon")[0]), "fedfish"): "ValueError: a"}
    assert "FedFish, moon failed in α = 0.1: ValueError: a" in Page(render(ROWS, failed_settings=failed)).text
