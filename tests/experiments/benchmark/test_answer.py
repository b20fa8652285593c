import math
from dataclasses import replace

import pytest
from scipy import stats

from fedfisher_core.experiments.benchmark.answer import (
    Pair,
    answer,
    at_equal_bits,
    compare_pairs,
    decided,
    in_points,
    setting_names,
    standings,
    to_other,
)
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.summary import Setting, summarise
from fedfisher_core.reporting.measure import PairedDifference
from tests.experiments.benchmark.samples import make_row

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


def test_a_method_with_one_seed_in_common_is_named_and_stands_in_no_lead() -> None:
    (who,) = sentences([*rows_of(THREE), make_row("alone", accuracy=0.1)])
    assert who.startswith("**a leads 2 of 3 methods**")
    assert who.endswith("above b, the next; a single seed in common shows nothing of alone.")
    # What may be above cannot be left out of the claim.
    (who,) = sentences([*rows_of(THREE), make_row("alone", accuracy=0.99)])
    assert who.startswith("**No method leads**")
    assert who.endswith("a single seed in common shows nothing of alone.")


def test_seeds_that_failed_in_different_settings_leave_a_comparison() -> None:
    settings = [rows_of({"a": [0.81, 0.82], "b": [0.9, 0.9], "fedavg": [0.6, 0.62]}, alpha=one) for one in (0.1, 0.5)]
    rows = [row for place, own in enumerate(settings) for row in own if not (row.method == "b" and row.seed == place)]
    (found,) = [one for one in standings(summarise(rows)) if one.method == "b"]
    assert found.behind_leader is not None
    assert (found.behind_leader.num_settings, found.behind_leader.difference.n) == (1, 1)
    assert sentences(rows)[0].startswith("**No method leads**")


def test_a_setting_that_lacks_a_seed_counts_where_it_adds_runs() -> None:
    first = rows_of({"a": [0.9, 0.91, 0.9], "b": [0.8, 0.8, 0.81]})
    second = rows_of({"a": [0.5, 0.5, 0.5], "b": [0.7, 0.4]}, alpha=0.5)
    found = standings(summarise([*first, *second]))
    assert [one.method for one in found] == ["a", "b"]
    assert found[1].behind_leader is not None
    # Two seeds in two settings are more runs than three in one.
    assert (found[1].behind_leader.num_settings, found[1].behind_leader.difference.n) == (2, 2)
    assert found[1].behind_leader.difference.mean == pytest.approx((0.1 + 0.11 - 0.2 + 0.1) / 4)


def test_methods_that_send_more_than_fedavg_stand_apart() -> None:
    rows = rows_of({"fedavg": [0.5, 0.51, 0.52], "a": [0.7, 0.71, 0.73]})
    costly = [
        replace(row, method_settings={"wire": {"budget": "none"}}, upload_bits=10 * row.upload_bits)
        for row in rows_of({"b": [0.9, 0.91, 0.92], "c": [0.8, 0.8, 0.8]})
    ]
    found = standings(summarise([*rows, *costly]))
    assert [one.method for one in found if one.line.present[0].best] == ["a"]
    (leader,) = [one for one in at_equal_bits(found) if one.behind_leader is None]
    assert leader.method == "a"
    first, *_, last = answer(found)
    assert first.startswith("**a leads**: over 1 setting its mean accuracy, 71.3 %, is 20.3 points")
    assert last == (
        "2 methods send over 5 % more than FedAvg and stand apart. Of these, b has the highest mean: 91.0 % at 10 "
        "times FedAvg's bits."
    )
    once = replace(costly[0], method="c", accuracy=0.99)
    assert "Of those with most settings and seeds, b has" in sentences([*rows, *costly[:3], once])[-1]
    (_, only) = sentences([*rows, *costly[:3]])
    assert only == "b sends over 5 % more than FedAvg and stands apart: 91.0 % at 10 times FedAvg's bits."


@pytest.mark.parametrize(("budget", "times"), [("none", 1.005), ("fedavg", 3.0)])
def test_a_little_more_and_what_the_budget_of_all_allows_stand_not_apart(budget: str, times: float) -> None:
    rows = [
        replace(row, method_settings={"wire": {"budget": "fedavg"}}) for row in rows_of({"fedavg": [0.5, 0.51, 0.52]})
    ]
    more = rows_of({"b": [0.9, 0.91, 0.93]}, upload_bits=int(times * rows[0].upload_bits))
    more = [replace(row, method_settings={"wire": {"budget": budget}}) for row in more]
    assert sentences([*rows, *more])[0].startswith("**b leads**")


def test_in_how_many_settings_a_better_method_was_compared_is_said() -> None:
    first = rows_of({"a": [0.9, 0.91, 0.9], "b": [0.7, 0.7, 0.71], "c": [0.95, 0.95, 0.96]})
    second = rows_of({"a": [0.9, 0.92, 0.9], "b": [0.7, 0.7, 0.71]}, alpha=0.5)
    (who,) = sentences([*first, *second])
    assert "c (compared in 1 setting) is above it in the seeds in common" in who


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


@pytest.mark.parametrize("own", [1, 3])
def test_a_setting_in_which_one_lacks_seeds_is_left_out_of_their_comparison(own: int) -> None:
    rows = [
        row
        for alpha, first, second in ((0.1, 3, 3), (0.5, 3, 3), (1.0, own, 1))
        for row in (
            *rows_of({"a": [0.9, 0.91, 0.93][:first]}, alpha=alpha),
            *rows_of({"b": [0.8] * second}, alpha=alpha),
        )
    ]
    (who,) = sentences(rows)
    assert "11.3 points (7.5 to 15.1) above b, the next (compared in 2 settings)." in who


def test_one_seed_claims_nothing() -> None:
    (who,) = sentences([make_row("a", accuracy=0.9), make_row("b", accuracy=0.1)])
    assert who.endswith("It is 80.0 points above b, the next; one seed shows no lead.")


def test_a_method_alone_is_compared_with_none() -> None:
    (who,) = sentences(rows_of({"fedavg": [0.5, 0.6]}))
    assert who == "**FedAvg** is the only method that returns one network. Its mean accuracy over 1 setting is 55.0 %."


def test_a_method_that_lacks_a_seed_comes_after_those_that_have_all() -> None:
    rows = [*rows_of({"a": [0.9, 0.91], "b": [0.93, 0.935, 0.5], "c": [0.8, 0.82, 0.4]})]
    assert [one.method for one in standings(summarise(rows))] == ["b", "c", "a"]
    (who,) = sentences(rows)
    assert who.startswith("**No method leads**: over 1 setting b has the highest mean of those with most settings and")


def test_seeds_that_are_no_others_compare_nothing() -> None:
    apart = [replace(row, seed=row.seed + 5) for row in rows_of({"b": [0.5, 0.6]})]
    (who,) = sentences([*rows_of({"a": [0.9, 0.8]}), *apart])
    assert who.startswith(
        "**a** has a mean accuracy of 85.0 % over 1 setting. No other method ran in one of its settings"
    )
    (who,) = sentences([*rows_of({"a": [0.9, 0.8], "c": [0.5, 0.41]}), *apart])
    assert who.endswith("above c, the next; it has no setting and seed in common with b.")


def test_differences_without_an_interval_lead_nothing() -> None:
    (who,) = sentences(rows_of({"a": [0.75, 0.5], "b": [0.5, 0.25]}))
    assert who.startswith(
        "**No method leads**: over 1 setting a has the highest mean, 62.5 %, 25.0 points above b, the"
    )
    assert who.endswith("next; the difference from b is the same in every seed, and has no interval.")


def test_a_method_that_is_above_in_the_seeds_in_common_is_named() -> None:
    (who,) = sentences(rows_of({"a": [0.5, 0.51, 0.9], "b": [0.6, 0.615], "c": [0.1, 0.1, 0.5]}))
    assert who.startswith("**No method leads**: over 1 setting a has the highest mean, 63.7 %,")
    assert who.endswith("; b is above it in the seeds in common.")


def test_what_fedfisher_and_our_own_methods_do_is_said() -> None:
    accuracies = {"regmean": 0.9, "mats": 0.8, "fedfisher_kfac": 0.7, "gaussian_distillation": 0.6, "fedavg": 0.65}
    rows = rows_of({method: [one, one + 0.02, one] for method, one in accuracies.items()})
    methods = [replace(row, method_settings={"method": row.method}) for row in rows]
    _, what = sentences(methods)
    assert what == (
        "FedFisher (K-FAC) is number 3 of 5, 20.0 points below RegMean, 5.0 points above FedAvg; Gaussian distillation "
        "is number 5 of 5, 30.0 points below RegMean, 5.0 points below FedAvg."
    )


def test_a_method_that_lacks_seeds_has_no_number_and_may_be_above(rows_of_kfac: list[Row]) -> None:
    _, what = sentences(rows_of_kfac)
    assert what == (
        "FedFisher (K-FAC), which lacks settings or seeds, is 20.5 points (14.1 to 26.9) above RegMean, 41.0 points "
        "above FedAvg."
    )


@pytest.fixture
def rows_of_kfac() -> list[Row]:
    accuracies = {"regmean": [0.7, 0.71, 0.7], "fedfisher_kfac": [0.9, 0.92], "fedavg": [0.49, 0.51, 0.5]}
    return [replace(row, method_settings={"method": row.method}) for row in rows_of(accuracies)]


def test_an_interval_that_leaves_0_out_shows_it() -> None:
    assert in_points(PairedDifference(0.00041, 1e-5, 3)) == "0.04 points (0.04 to 0.04)"
    assert in_points(PairedDifference(-0.00001, 0.001, 3)) == "0.0 points (−0.2 to 0.2)"


def test_names_with_commas_are_listed_by_semicolons() -> None:
    scattered = {f"fedfisher_kfac, {name}": [0.1, 0.9, 0.5] for name in "xy"}
    (who,) = [one for one in sentences(rows_of({"a": [0.9, 0.91, 0.92], "b": [0.8, 0.81, 0.83], **scattered}))][:1]
    assert who.endswith("its interval to FedFisher (K-FAC), x and FedFisher (K-FAC), y includes 0.")
    scattered["z"] = [0.2, 0.8, 0.5]
    who = sentences(rows_of({"a": [0.9, 0.91, 0.92], "b": [0.8, 0.81, 0.83], **scattered}))[0]
    assert who.endswith("its interval to FedFisher (K-FAC), x; FedFisher (K-FAC), y and z includes 0.")


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


def rows_of(accuracies: dict[str, list[float]], **changes: object) -> list[Row]:
    return [
        make_row(method, seed=seed, accuracy=accuracy, **changes)
        for method, own in accuracies.items()
        for seed, accuracy in enumerate(own)
    ]


def by_names(rows: list[Row]) -> dict[tuple[str, str], Pair]:
    return {(pair.higher, pair.lower): pair for pair in compare_pairs(summarise(rows))}


THREE = {"a": [0.90, 0.91, 0.92], "b": [0.61, 0.60, 0.63], "c": [0.60, 0.62, 0.61]}


def test_pairs_are_corrected_for_all_tests_by_hand() -> None:
    pairs = by_names(rows_of(THREE))
    assert set(pairs) == {("a", "b"), ("a", "c"), ("b", "c")}
    # Differences of a to c: 0.30, 0.29, 0.31; of a to b: 0.29, 0.31, 0.29; of b to c: 0.01, -0.02, 0.02.
    first = 2 * stats.t.sf(0.3 / (0.01 / math.sqrt(3)), 2)
    second = 2 * stats.t.sf(0.89 / 3 / (stats.tstd([0.29, 0.31, 0.29]) / math.sqrt(3)), 2)
    third = 2 * stats.t.sf(0.01 / 3 / (stats.tstd([0.01, -0.02, 0.02]) / math.sqrt(3)), 2)
    assert 3 * first > 2 * second
    # The second is no smaller than the first.
    for names, corrected in ((("a", "c"), 3 * first), (("a", "b"), 3 * first), (("b", "c"), third)):
        assert pairs[names].p_value == pytest.approx(corrected)
        assert pairs[names].differs == (names[0] == "a")


def test_more_settings_are_more_tests() -> None:
    one = by_names(rows_of(THREE))["a", "c"]
    both = compare_pairs(summarise([*rows_of(THREE), *rows_of(THREE, alpha=0.5)]))
    assert len(both) == 6
    twice = [pair.p_value for pair in both if (pair.higher, pair.lower) == ("a", "c")]
    assert one.p_value is not None
    # The two share the smallest p-value of six: the first is multiplied by 6, and the second may not be below it.
    assert twice == pytest.approx([2 * one.p_value] * 2)


def test_one_seed_gives_no_test_and_no_claim() -> None:
    (pair,) = compare_pairs(summarise([make_row("a", accuracy=0.9), make_row("b", accuracy=0.1)]))
    assert pair.difference.mean == pytest.approx(0.8)
    assert pair.p_value is None
    assert not pair.differs


def test_what_is_not_tested_does_not_count() -> None:
    alone = make_row("dense", accuracy=0.1)
    with_dense, without = by_names([*rows_of(THREE), alone]), by_names(rows_of(THREE))
    assert with_dense["a", "dense"].p_value is None
    assert with_dense["a", "b"].p_value == without["a", "b"].p_value


def test_without_a_common_seed_there_is_no_pair() -> None:
    assert not compare_pairs(summarise([make_row("a", seed=0), make_row("b", seed=1)]))


def test_methods_that_tie_are_no_discovery() -> None:
    assert by_names(rows_of({"a": [0.5, 0.6], "b": [0.5, 0.6]}))["a", "b"].p_value == 1.0


def test_ensembles_and_references_are_not_compared() -> None:
    apart = [
        *rows_of({"ensemble": [0.9, 0.9], "local_mean": [0.1, 0.2]}, reference=True),
        *rows_of({"fedavg": [0.5, 0.4]}),
    ]
    assert not compare_pairs(summarise(apart))


def test_what_is_decided_is_gathered_by_setting_and_method() -> None:
    rows = [*rows_of(THREE), *rows_of({"a": [0.5, 0.6], "b": [0.5, 0.6]}, alpha=0.5), make_row("dense")]
    (found,) = decided(compare_pairs(summarise(rows)))
    assert found.setting.alpha == 0.1
    assert found.above == {"a": ("b", "c")}
    assert found.tests == 3


def test_a_difference_that_is_the_same_in_every_seed_is_not_tested() -> None:
    # In floating point, the differences are 0.01 but for their last bits.
    pairs = by_names(rows_of({"a": [0.6, 0.5, 0.3], "b": [0.59, 0.49, 0.29], "c": [0.1, 0.2, 0.1]}))
    assert pairs["a", "b"].difference.mean == 0.01
    assert pairs["a", "b"].p_value is None
    without = by_names(rows_of({"a": [0.6, 0.5, 0.3], "c": [0.1, 0.2, 0.1]}))["a", "c"].p_value
    assert without is not None
    # It is one of two tests, and not of three.
    assert pairs["a", "c"].p_value == pytest.approx(2 * without)
