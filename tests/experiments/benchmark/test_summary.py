import statistics
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.benchmark.rows import Role, Row
from fedfisher_core.experiments.benchmark.summary import (
    MethodSummary,
    families,
    overview,
    summarise,
)
from fedfisher_core.reporting.measure import paired_difference
from tests.experiments.benchmark.samples import make_row, make_rows


def by_method(rows: list[Row]) -> dict[str, MethodSummary]:
    (summary,) = summarise(rows)
    return {method.method: method for method in summary.methods}


def test_mean_and_deviation_by_hand() -> None:
    rows = [make_row(seed=seed, accuracy=value) for seed, value in enumerate([0.5, 0.6, 0.7])]
    accuracy = by_method(rows)["fedavg"].accuracy
    assert accuracy.mean == pytest.approx(0.6)
    assert accuracy.deviation == pytest.approx(0.1)
    assert accuracy.n == 3


def test_a_single_seed_has_no_deviation_and_no_interval() -> None:
    methods = by_method([make_row(), make_row("kfac", accuracy=0.7)])
    assert methods["kfac"].accuracy.deviation is None
    assert methods["kfac"].difference is not None
    assert methods["kfac"].difference.interval is None
    assert methods["kfac"].difference.mean == pytest.approx(0.2)


def test_the_interval_is_that_of_the_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    ours, baseline = rng.uniform(size=(2, 6))
    difference = paired_difference(dict(enumerate(ours)), dict(enumerate(baseline)))
    expected = stats.ttest_rel(ours, baseline).confidence_interval(0.95)
    assert difference is not None
    assert difference.mean == pytest.approx(float(np.mean(ours - baseline)))
    assert difference.interval == pytest.approx((expected.low, expected.high))


def test_only_common_seeds_are_paired() -> None:
    difference = paired_difference({0: 0.9, 1: 0.5, 2: 0.7}, {1: 0.4, 2: 0.5, 7: 0.0})
    assert difference is not None
    assert difference.n == 2
    assert difference.mean == pytest.approx(0.15)
    assert paired_difference({0: 0.9}, {1: 0.4}) is None


def test_the_baseline_has_no_difference_and_its_absence_gives_none() -> None:
    assert by_method(make_rows({"fedavg": 0.5}))["fedavg"].difference is None
    alone = by_method(make_rows({"kfac": 0.5}))["kfac"]
    assert alone.difference is None
    assert alone.upload_ratio is None


def test_the_best_is_one_network_and_ensembles_and_references_follow() -> None:
    apart = [make_row("local_mean", accuracy=0.95, reference=True), make_row("ensemble", accuracy=0.9, reference=True)]
    (summary,) = summarise([*make_rows({"fedavg": 0.5, "kfac": 0.7}), *apart])
    assert [(method.method, method.best) for method in summary.methods] == [
        ("kfac", True),
        ("fedavg", False),
        ("ensemble", False),
        ("local_mean", False),
    ]
    assert [method.method for method in summary.compared] == ["kfac", "fedavg"]
    assert list(summary.by_role) == [Role.ONE_NETWORK, Role.ENSEMBLE, Role.REFERENCE]


def test_what_is_below_the_clients_own_models_is_marked() -> None:
    local = [make_row("local", seed=seed, accuracy=value, reference=True) for seed, value in enumerate([0.5, 0.1])]
    local = [replace(row, method_settings={"method": "local_mean"}) for row in local]
    # With seed 0 alone, 0.4 is below the local 0.5, though it is above their mean over both seeds.
    others = [make_row("once", accuracy=0.4), *make_rows({"above": 0.35, "below": 0.2}, seeds=2)]
    marks = {name: method.below_local for name, method in by_method([*local, *others]).items()}
    assert marks == {"once": True, "above": False, "below": True, "local": False}
    assert not any(method.below_local for method in by_method(others).values())


def test_methods_that_tie_are_all_best() -> None:
    # In floating point the two means differ in the last bit.
    assert statistics.fmean([0.1, 0.2]) != 0.15
    rows = [make_row("a", seed=seed, accuracy=value) for seed, value in enumerate([0.1, 0.2])]
    rows += [make_row("b", seed=seed, accuracy=0.15) for seed in range(2)]
    rows += make_rows({"c": 0.1}, seeds=2)
    assert [method for method, summary in by_method(rows).items() if summary.best] == ["a", "b"]


def test_a_method_that_ran_with_fewer_seeds_is_not_best_for_them() -> None:
    # Below the other with each seed that it ran with.
    rows = [make_row("a", seed=seed, accuracy=value) for seed, value in enumerate([0.9, 0.9, 0.3])]
    rows += [make_row("b", seed=seed, accuracy=0.85) for seed in range(2)]
    assert {method: summary.best for method, summary in by_method(rows).items()} == {"a": True, "b": False}


def test_a_setting_of_references_alone_has_no_best() -> None:
    assert not by_method([make_row("local", reference=True)])["local"].best


def test_settings_are_kept_apart_and_in_order() -> None:
    rows = [*make_rows({"fedavg": 0.5}, alphas=(None, 0.3, 0.05)), make_row(num_clients=10)]
    labels = [summary.setting.label for summary in summarise(rows)]
    assert labels == [
        "mnist, mlp, 5 clients, 1 round, dirichlet, α = 0.05",
        "mnist, mlp, 5 clients, 1 round, dirichlet, α = 0.3",
        "mnist, mlp, 5 clients, 1 round, iid",
        "mnist, mlp, 10 clients, 1 round, dirichlet, α = 0.1",
    ]
    assert [len(group) for group in families(rows).values()] == [3, 1]


def test_objectives_are_kept_apart_with_the_plain_one_first() -> None:
    rows = [make_row(objective=one, accuracy=0.1) for one in ("fedprox", "plain", "a")]
    assert list(families(rows)) == [
        "mnist, mlp, 5 clients, 1 round",
        "mnist, mlp, objective a, 5 clients, 1 round",
        "mnist, mlp, objective fedprox, 5 clients, 1 round",
    ]


def test_two_rows_for_a_seed_are_refused() -> None:
    with pytest.raises(InputError, match="'kfac' has two rows for seed 0"):
        summarise([make_row("kfac"), make_row("kfac", method_settings={"steps": 2})])


def test_client_seconds_and_upload_ratio() -> None:
    rows = [
        make_row(),
        make_row("kfac", client_statistics_seconds={"kfac": 2.0, "diagonal": 0.5}, upload_bits=3_000_000),
    ]
    kfac = by_method(rows)["kfac"]
    assert kfac.measure("client_seconds").mean == pytest.approx(12.5)
    encoding = by_method([make_row(client_encode_seconds=0.5)])["fedavg"]
    assert encoding.measure("client_seconds").mean == pytest.approx(10.5)
    assert kfac.upload_ratio == pytest.approx(3.0)


def test_the_overview_leaves_gaps_where_a_method_did_not_run() -> None:
    rows = make_rows({"fedavg": 0.5, "kfac": 0.7}, alphas=(0.1, 0.3))
    rows = [row for row in rows if (row.method, row.alpha) != ("kfac", 0.3)]
    lines = overview(summarise(rows))
    # What ran everywhere comes first: the mean of the other is over another setting.
    assert [line.method for line in lines] == ["fedavg", "kfac"]
    assert lines[1].cells[0] is not None
    assert lines[1].cells[1] is None


def test_shifts_are_settings_of_their_own_that_come_after_none() -> None:
    blurs = [make_row(shift="blur", shift_strength=strength) for strength in (10.0, 2.0)]
    settings = [one.setting for one in summarise([make_row(), *blurs, make_row(alpha=0.5)])]
    assert [one.split for one in settings] == [
        "dirichlet, α = 0.1",
        "dirichlet, α = 0.5",
        "dirichlet, α = 0.1, blur 2",
        "dirichlet, α = 0.1, blur 10",
    ]
