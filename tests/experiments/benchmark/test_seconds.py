"""Seconds of processors are compared where all rows have them, and those on the clock elsewhere."""

import pytest

from fedfisher_core.experiments.benchmark.algorithms import by_algorithm
from fedfisher_core.experiments.benchmark.rows import RoundPoint, Row, compared_seconds
from fedfisher_core.experiments.benchmark.summary import summarise
from fedfisher_core.experiments.benchmark.terminal import summary_tables
from tests.experiments.benchmark.samples import make_row, render
from tests.reporting.pages import Page

SPENT = {"client_processor_seconds": 4.0, "server_processor_seconds": 0.25}
TWICE = {"client_processor_seconds": 8.0, "server_processor_seconds": 0.75}


def counted() -> list[Row]:
    """On the clock, both are equal."""
    return [make_row(**SPENT), make_row("kfac", accuracy=0.75, **TWICE)]


def test_processors_are_compared_where_all_rows_have_them() -> None:
    (table,) = summary_tables(counted())
    assert table.header[-2:] == ["client CPU s", "server CPU s"]
    assert [line[-2:] for line in table.lines] == [["8.00", "0.75"], ["4.00", "0.25"]]
    text = Page(render(counted())).text
    assert "Clients, CPU s" in text
    assert "in seconds of processors." in text


@pytest.mark.parametrize("lacking", ["client_processor_seconds", "server_processor_seconds"])
def test_one_row_without_them_puts_all_on_the_clock(lacking: str) -> None:
    rows = [*counted(), make_row("old", **{**SPENT, lacking: None})]
    (table,) = summary_tables(rows)
    assert table.header[-2:] == ["client s", "server s"]
    assert {tuple(line[-2:]) for line in table.lines} == {("10.00", "0.50")}
    text = Page(render(rows)).text
    assert "CPU s" not in text
    assert "in seconds on the clock, which other work makes longer." in text


def test_so_it_is_round_by_round() -> None:
    point = RoundPoint(1, 0.5, 1.0, 0.4, 0.3, 8, 8)
    rows = [make_row(num_rounds=2, curve=[point, point], **SPENT)]  # type: ignore[arg-type]
    ((table,), old) = by_algorithm(summarise(rows)), [make_row()]
    assert table.algorithms[0].takes(compared_seconds(rows)) == 4.25
    assert table.algorithms[0].takes(compared_seconds(old)) == 10.5
