"""Algorithms over rounds: as numbers, as curves and on a page."""

import pytest

from fedfisher_core.experiments.benchmark.algorithms import by_algorithm
from fedfisher_core.experiments.benchmark.curves import curves_figure
from fedfisher_core.experiments.benchmark.rows import RoundPoint, Row
from fedfisher_core.experiments.benchmark.summary import summarise
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
    table, other = by_algorithm(summarise(ROWS))
    assert [one.name for one in table.algorithms] == ["fedavg, moon", "fedavg", "fedavg, fedadam"]
    moon, plain, adam = table.algorithms
    assert (moon.best, plain.best, plain.difference) == (True, False, None)
    assert moon.difference is not None
    assert moon.difference.mean == pytest.approx(0.15)
    assert adam.difference is not None
    assert adam.difference.mean == pytest.approx(-0.025)
    assert (moon.last.round, moon.last.upload_bits, moon.last.bits) == (2, 128_000_000, 192_000_000)
    assert moon.points[0].accuracy.mean == pytest.approx(0.1)
    # Without plain FedAvg there is nothing to subtract.
    assert [(one.name, one.difference) for one in other.algorithms] == [("fedavg, fedadam", None)]


def test_one_round_has_no_algorithms() -> None:
    assert by_algorithm(summarise(make_rows({"fedavg": 0.5}))) == []


def test_curves_have_a_point_a_round_and_a_band_over_seeds() -> None:
    figure = curves_figure(by_algorithm(summarise(ROWS)))
    by_round, by_bits = figure.axes[:2]
    assert [list(line.get_xdata()) for line in by_round.lines] == [[1, 2]] * 3
    assert list(by_bits.lines[0].get_xdata()) == pytest.approx([12, 24])
    assert list(by_round.lines[0].get_ydata()) == pytest.approx([10, 75])
    assert len(by_round.collections) == 3


def test_a_page_shows_rounds_where_there_are_several() -> None:
    page = Page(render(ROWS))
    for part in ("Round by round", "fedavg, moon", "After round 2, %", "+15.00", "server optimiser fedadam"):
        assert part in page.text
    assert "Round by round" not in Page(render(make_rows({"fedavg": 0.5}))).text
