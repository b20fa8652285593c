import pytest

from fedfisher_core.experiments.benchmark.answer import answer, setting_names
from fedfisher_core.experiments.benchmark.leads import find_leads
from fedfisher_core.experiments.benchmark.pairs import compare_pairs
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.summary import Setting, summarise
from tests.experiments.benchmark.samples import make_row
from tests.experiments.benchmark.test_pairs import THREE, rows_of

LEVEL = {"a": [0.5, 0.9, 0.7], "b": [0.6, 0.6, 0.8]}


def sentences(rows: list[Row]) -> list[str]:
    summaries = summarise(rows)
    pairs = compare_pairs(summaries)
    return answer(summaries, find_leads(summaries, pairs), sum(pair.test is not None for pair in pairs))


def test_a_lead_is_claimed_where_tests_show_it() -> None:
    who, how_much, _ = sentences(rows_of(THREE))
    assert who == "`a` leads: tests tell it apart from each of the 2 methods that it is compared with."
    assert "29.67 points [+25.53, +33.80]" in how_much
    assert "(`a` over `b`)" in how_much
    assert "over 3 seeds, corrected for 3 tests" in how_much


def test_no_lead_is_claimed_where_the_interval_covers_0() -> None:
    who, how_much, _ = sentences(rows_of(LEVEL))
    assert who == "No method leads: the most accurate is `a`, but no test shows it to be above `b`."
    assert "3.33 points [−" in how_much
    assert "leads" not in how_much


def test_one_seed_claims_nothing() -> None:
    who, how_much, _ = sentences([make_row("a", accuracy=0.9), make_row("b", accuracy=0.1)])
    assert who == "No method leads, as a test needs two seeds: the most accurate is `a`."
    assert how_much.endswith("are 80.00 points apart; one seed gives no interval.")


def test_a_method_alone_is_compared_with_none() -> None:
    who, how_much, cost = sentences(rows_of({"fedavg": [0.5, 0.6]}))
    assert who == "`fedavg` is the only method of one network, and is compared with none."
    assert how_much == "The highest mean accuracy is 55.00 %."
    assert cost == "`fedavg` uploads 1.000 Mbit, and takes the clients 10.00 s and the server 0.50 s."


def test_settings_that_differ_are_summed_up() -> None:
    rows = [*rows_of(THREE), *rows_of(LEVEL, alpha=0.5), *rows_of(LEVEL, alpha=0.7)]
    who, how_much, _ = sentences(rows)
    assert who == (
        "One method leads in 1 of 3 settings, `a` in 1; in the others the most accurate is `a` in 2, but each time "
        "no test shows it to be above another, the nearest of which is `b` in 2."
    )
    assert "(α = 0.1: `a` over `b`)" in how_much
    assert "(α = 0.7: `a` over `b`)" in how_much


def test_many_settings_are_a_range() -> None:
    rows = [row for alpha in (0.1, 0.2, 0.3) for row in rows_of(LEVEL, alpha=alpha)] + rows_of(THREE, alpha=0.4)
    who, how_much, _ = sentences(rows)
    assert "leads in 1 of 4 settings" in who
    assert "3.33 to 29.67 points apart" in how_much
    assert "reach from −" in how_much


def test_no_setting_with_a_lead_is_said_as_such() -> None:
    who = sentences([*rows_of(LEVEL), *rows_of(LEVEL, alpha=0.5)])[0]
    assert who.startswith("No method leads in any of the 2 settings: the most accurate is `a`, but each time")


def test_what_was_not_tested_is_named() -> None:
    who = sentences([*rows_of(THREE), make_row("dense", accuracy=0.99)])[0]
    assert who.endswith("; no test compares it with `dense`.")


def test_a_method_that_is_above_is_no_tie() -> None:
    who, how_much, _ = sentences(rows_of({"a": [0.70, 0.71, 0.69, 0.95, 0.96], "b": [0.80, 0.815, 0.79]}))
    assert who == "No method leads: the most accurate is `a`, but no test shows it to be above `b`."
    assert how_much == "The highest mean accuracy is 80.20 %."


def test_settings_without_a_test_are_no_ties() -> None:
    who = sentences([*rows_of(LEVEL), *rows_of({"a": [0.5, 0.6]}, alpha=0.5)])[0]
    assert who == (
        "No method leads in any of the 1 of 2 settings, those that have a test: the most accurate is `a`, but each "
        "time no test shows it to be above another, the nearest of which is `b`."
    )


def test_the_ratios_of_costs_are_of_settings_with_both() -> None:
    rows = [*rows_of(THREE), *rows_of({"fedavg": [0.1, 0.1, 0.2]}), *rows_of(THREE, alpha=0.5, upload_bits=6_000_000)]
    assert sentences(rows)[2].startswith("`a` uploads 1.00 times what `fedavg` does")


def test_the_cost_is_that_of_the_most_accurate_beside_fedavgs() -> None:
    rows = rows_of(THREE, upload_bits=2_000_000, client_train_seconds=15.0, uses_validation=True)
    cost = sentences([*rows, *rows_of({"fedavg": [0.1, 0.1, 0.2]})])[2]
    assert cost == (
        "`a` uploads 2.00 times what `fedavg` does, and takes the clients 1.50 times as long and the server 0.50 s, "
        "where `fedavg` takes 0.50 s, with a look at the server’s validation images."
    )


def test_a_page_of_references_has_no_answer() -> None:
    assert sentences([make_row("local_mean", reference=True)]) == []


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"alpha": 0.5}, "α = 0.5"),
        ({"num_clients": 9}, "9 clients"),
        ({"dataset": "svhn", "alpha": None}, "svhn"),
        ({"shift": "blur", "shift_strength": 2.0}, "blur 2"),
        ({"objective": "fedprox"}, "fedprox"),
        ({"server_optimiser": "fedadam"}, "fedadam"),
    ],
)
def test_a_setting_is_named_by_what_sets_it_apart(changes: dict[str, object], name: str) -> None:
    first, second = Setting.of(make_row()), Setting.of(make_row(**changes))  # type: ignore[arg-type]
    assert setting_names([first, second])[second] == name
    assert setting_names([first, second])[first]
    assert setting_names([first]) == {first: first.label}
