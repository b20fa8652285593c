"""Results of a benchmark as tables for the terminal."""

from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.summary import Setting
from fedfisher_core.experiments.benchmark.terminal import summary_tables
from fedfisher_core.reporting.formats import as_text
from tests.experiments.benchmark.samples import make_row, make_rows


def terminal(rows: list[Row]) -> str:
    return as_text(summary_tables(rows))


def test_the_table_is_aligned_and_marks_the_best() -> None:
    rows = make_rows({"fedavg": 0.5, "a method with quite a long label": 0.7}, alphas=(0.1, 0.3, None))
    rows += [make_row("local", accuracy=0.05, reference=True)]
    lines = terminal(rows).splitlines()
    assert lines[0] == Setting.of(rows[0]).family
    assert len({len(line) for line in lines[1:]}) == 1
    assert lines[3].startswith("a method with quite a long label  71.00 ±  1.00*")
    assert "51.00 ±  1.00 " in lines[4]
    assert lines[5].startswith("local (reference)")
    assert "1.00x" in lines[4]


def test_the_table_shows_no_deviation_of_one_seed() -> None:
    assert "±" not in terminal(make_rows({"fedavg": 0.5}, seeds=1))


def test_a_shift_is_named_with_the_split() -> None:
    (table,) = summary_tables([make_row(shift="blur", shift_strength=2.0)])
    assert table.header[1].strip() == "dirichlet, α = 0.1, blur 2"


def test_algorithms_over_rounds_share_a_table() -> None:
    rows = [make_row(num_rounds=2), make_row(num_rounds=2, objective="moon", server_optimiser="fedadam")]
    (table,) = summary_tables(rows)
    assert {line[0] for line in table.lines} == {"fedavg", "fedavg, moon, fedadam"}
    # One training serves all methods of one round, so that its objective is a setting.
    assert len(summary_tables([make_row(), make_row(objective="moon")])) == 2


def test_schemes_that_differ_are_named_with_the_split() -> None:
    rows = [make_row(partition="dirichlet_class", alpha=0.1), make_row(partition="dirichlet_client", alpha=0.05)]
    (table,) = summary_tables(rows)
    assert [column.strip() for column in table.header[1:3]] == [
        "dirichlet_class, α = 0.1",
        "dirichlet_client, α = 0.05",
    ]
