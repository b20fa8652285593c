"""Objectives next to each other, on a page and as numbers."""

import pytest

from fedfisher_core.experiments.benchmark.algorithms import by_objective
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.summary import Setting, summarise
from tests.experiments.benchmark.samples import make_row, make_rows, render
from tests.reporting.pages import Page


def rows_of(objective: str, method: str, *accuracies: float, **changes: object) -> list[Row]:
    return [
        make_row(method, objective=objective, seed=seed, accuracy=accuracy, **changes)
        for seed, accuracy in enumerate(accuracies)
    ]


ROWS = [
    *rows_of("fedprox", "fedavg", 0.7, 0.4),
    *rows_of("plain", "fedavg", 0.5, 0.4, 0.9),
    *rows_of("plain", "kfac", 0.8, 0.8),
    *rows_of("fedprox", "ties", 0.3),
    # A setting with one objective.
    *rows_of("plain", "fedavg", 0.6, alpha=0.5),
]

SHORTER = [*rows_of("plain", "fedavg", 0.8, 0.2), *rows_of("fedprox", "fedavg", 0.7)]


def test_objectives_are_compared_over_common_seeds_where_nothing_else_differs() -> None:
    (table,) = by_objective(summarise(ROWS))
    assert table.title == Setting.of(make_row()).label
    assert table.objectives == ("plain", "fedprox")
    lines = dict(table.lines)
    # A method with gaps comes after those without.
    assert list(lines) == ["fedavg", "kfac", "ties"]
    plain, prox = lines["fedavg"]
    assert plain is not None
    assert prox is not None
    assert (plain.difference, plain.best, plain.accuracy.n) == (None, True, 3)
    assert (prox.best, prox.accuracy.mean) == (False, pytest.approx(0.55))
    assert prox.difference is not None
    assert (prox.difference.mean, prox.difference.n) == (pytest.approx(0.1), 2)
    assert lines["kfac"][1] is None
    # With seed 0 alone, the other objective would be ahead.
    assert [cell and cell.best for cell in dict(by_objective(summarise(SHORTER))[0].lines)["fedavg"]] == [True, False]
    (gap, alone) = lines["ties"]
    assert gap is None
    assert alone is not None
    assert alone.difference is None


def test_a_page_shows_objectives_where_there_are_several() -> None:
    page = Page(render(ROWS))
    for part in ("What clients minimise", "fedprox", "+10.00 [−117.06, +137.06]", "fedprox, α = 0.1"):
        assert part in page.text
    assert "What clients minimise" not in Page(render(make_rows({"fedavg": 0.5, "kfac": 0.7}))).text
    alone = Page(render(rows_of("fedprox", "fedavg", 0.5))).text
    assert "What clients minimise" not in alone
    assert "mnist, mlp, objective fedprox, 5 clients, 1 round" in alone


def test_the_mean_over_settings_is_of_what_all_of_them_have() -> None:
    rows = [
        *rows_of("plain", "fedavg", 0.5, 0.6, 0.9),
        *rows_of("plain", "fedavg", 0.7, 0.6, alpha=0.5),
        *rows_of("moon", "fedavg", 0.6, 0.8),
        *rows_of("moon", "fedavg", 0.8, 0.8, alpha=0.5),
        # Neither an objective nor a method of one setting alone.
        *rows_of("fedprox", "fedavg", 0.6, 0.6),
        *rows_of("plain", "ties", 0.6, 0.6),
        *rows_of("moon", "ties", 0.6, 0.6),
    ]
    whole, *each = by_objective(summarise(rows))
    assert (whole.title, whole.objectives, len(each)) == ("mean over 2 settings", ("plain", "moon"), 2)
    ((method, (plain, moon)),) = whole.lines
    assert method == "fedavg"
    assert plain is not None
    assert moon is not None
    # The seeds that both settings have: 0.6 and 0.6 with plain training, 0.7 and 0.8.
    assert (plain.accuracy.mean, plain.accuracy.n, plain.difference) == (pytest.approx(0.6), 2, None)
    assert (moon.accuracy.mean, moon.best) == (pytest.approx(0.75), True)
    assert moon.difference is not None
    assert (moon.difference.mean, moon.difference.n) == (pytest.approx(0.15), 2)
    assert "mean over 2 settings" in Page(render(rows)).text


def test_without_plain_training_nothing_is_subtracted() -> None:
    (table,) = by_objective(summarise([*rows_of("a", "fedavg", 0.5), *rows_of("b", "fedavg", 0.6)]))
    ((_, cells),) = table.lines
    assert [cell.difference for cell in cells if cell] == [None, None]
    assert [cell.best for cell in cells if cell] == [False, True]
