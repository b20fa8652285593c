from dataclasses import replace

import pytest

from fedfisher_core.experiments.benchmark.answer import answer, setting_names, standings, to_other
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.summary import Setting, summarise
from fedfisher_core.reporting.measure import PairedDifference
from tests.experiments.benchmark.samples import make_row
from tests.experiments.benchmark.test_pairs import THREE, rows_of

LEVEL = {"a": [0.5, 0.9, 0.7], "b": [0.6, 0.6, 0.8]}


def sentences(rows: list[Row]) -> list[str]:
    return answer(standings(summarise(rows)))


def test_a_lead_is_claimed_where_all_intervals_exclude_0() -> None:
    (who,) = sentences(rows_of(THREE))
    assert who == (
        "**a leads all 2 other methods**: over 1 setting its mean accuracy, 91.0 %, is 29.7 points (26.8 to 32.5) "
        "above b, the next."
    )


def test_no_lead_is_claimed_where_an_interval_covers_0() -> None:
    (who,) = sentences(rows_of(LEVEL))
    assert who.startswith("**No method leads**: over 1 setting a has the highest mean, 70.0 %, 3.3 points (−")
    assert who.endswith("above b, the next.")
    # The next is behind, and another scatters too much to say so.
    (who,) = sentences(rows_of({"a": [0.9, 0.91, 0.92], "b": [0.8, 0.81, 0.83], "c": [0.1, 0.9, 0.5]}))
    assert who.endswith("above b, the next; its interval to c includes 0.")


def test_settings_are_compared_in_their_mean_seed_by_seed() -> None:
    rows = [*rows_of({"a": [0.5, 0.7], "b": [0.4, 0.5]}), *rows_of({"a": [0.9, 0.9], "b": [0.8, 0.7]}, alpha=0.5)]
    first, second = standings(summarise(rows))
    assert first.method == "a"
    assert first.behind_leader is None
    assert second.behind_leader is not None
    # By seed (0.1 + 0.1) / 2 and (0.2 + 0.2) / 2.
    assert second.behind_leader.difference.mean == pytest.approx(0.15)
    assert second.behind_leader.difference.deviation == pytest.approx(0.1 / 2**0.5)
    assert (second.behind_leader.num_settings, second.behind_leader.difference.n) == (2, 2)
    assert first.mean is not None
    assert first.mean.mean == pytest.approx(0.75)


def test_a_method_that_lacks_a_setting_comes_after_those_that_do_not() -> None:
    rows = [*rows_of(LEVEL), *rows_of(LEVEL, alpha=0.5), *rows_of({"dense": [0.99, 0.99, 0.99]})]
    found = standings(summarise(rows))
    assert [one.method for one in found] == ["a", "b", "dense"]
    assert found[2].behind_leader is not None
    assert found[2].behind_leader.num_settings == 1
    assert found[2].behind_leader.difference.mean < 0


def test_a_setting_in_which_one_lacks_seeds_is_left_out_of_their_comparison() -> None:
    rows = [
        row
        for alpha, seeds in ((0.1, 3), (0.5, 3), (1.0, 1))
        for row in (*rows_of({"a": [0.9, 0.91, 0.93]}, alpha=alpha), *rows_of({"b": [0.8] * seeds}, alpha=alpha))
    ]
    (who,) = sentences(rows)
    assert "11.3 points (7.5 to 15.1) above b, the next (in the 2 settings in which both have all seeds)." in who


def test_one_seed_claims_nothing() -> None:
    (who,) = sentences([make_row("a", accuracy=0.9), make_row("b", accuracy=0.1)])
    assert who.endswith("It is 80.0 points above b, the next; one seed shows no lead.")


def test_a_method_alone_is_compared_with_none() -> None:
    (who,) = sentences(rows_of({"fedavg": [0.5, 0.6]}))
    assert who == "**FedAvg** is the only method that returns one network. Its mean accuracy over 1 setting is 55.0 %."


def test_what_fedfisher_and_our_own_methods_do_is_said() -> None:
    accuracies = {"regmean": 0.9, "mats": 0.8, "fedfisher_kfac": 0.7, "gaussian_distillation": 0.6, "fedavg": 0.65}
    rows = rows_of({method: [one, one + 0.02, one] for method, one in accuracies.items()})
    methods = [replace(row, method_settings={"method": row.method}) for row in rows]
    _, what = sentences(methods)
    assert what == (
        "FedFisher (K-FAC) is number 3 of 5, 20.0 points below RegMean, 5.0 points above FedAvg; Gaussian distillation "
        "is number 5 of 5, 30.0 points below RegMean, 5.0 points below FedAvg."
    )


def test_of_a_leader_it_is_said_how_far_it_is_above_fedavg() -> None:
    _, what = sentences(rows_of({**THREE, "fedavg": [0.1, 0.2, 0.1]}))
    assert what.startswith("a is 77.7 points (")
    assert what.endswith("above FedAvg.")


def test_a_difference_below_0_is_below() -> None:
    assert to_other(PairedDifference(-0.02, 0.01, 4), "fedavg") == "2.0 points (0.4 to 3.6) below FedAvg"


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
