from dataclasses import replace
from pathlib import Path

import pytest

from fedfisher_core.experiments.benchmark.published import (
    MARGIN,
    PublishedResult,
    Verdict,
    compare,
    not_run,
    published_tables,
)
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.experiments.contract import load
from fedfisher_core.reporting.measure import Measure, WelchDifference
from tests.experiments.benchmark.samples import make_row

ROOT = Path(__file__).parents[3]


def published(mean: float, deviation: float | None, **changes: object) -> PublishedResult:
    values: dict[str, object] = {
        "source": "a paper",
        "table": "Table 1",
        "dataset": "mnist",
        "model": "mlp",
        "partition": "dirichlet",
        "num_clients": 5,
        "alpha": 0.1,
        "method": "fedavg",
        "mean": mean,
        "deviation": deviation,
        "repeats": 5,
    }
    return PublishedResult(**(values | changes))  # type: ignore[arg-type]


def rows(*accuracies: float) -> list[Row]:
    return [make_row(seed=seed, accuracy=accuracy) for seed, accuracy in enumerate(accuracies)]


OURS = rows(0.70, 0.71, 0.69, 0.705, 0.695)


@pytest.mark.parametrize(
    ("mean", "deviation", "verdict"),
    [
        (0.705, 0.01, Verdict.EQUIVALENT),
        (0.60, 0.01, Verdict.ABOVE),
        (0.80, 0.01, Verdict.BELOW),
        (0.705, 0.1, Verdict.OPEN),
        (0.65, 0.01, Verdict.OPEN),
        (0.70, None, Verdict.NO_DEVIATION),
        (0.10, None, Verdict.NO_DEVIATION),
    ],
)
def test_a_verdict_follows_from_the_tests(mean: float, deviation: float | None, verdict: Verdict) -> None:
    (comparison,) = compare(OURS, [published(mean, deviation)])
    assert comparison.verdict is verdict
    assert comparison.difference == pytest.approx(0.70 - mean)


def test_the_tests_are_welchs_and_corrected_for_their_number() -> None:
    alone = WelchDifference.of(Measure.of([row.accuracy for row in OURS]), Measure(0.705, 0.01, 5))
    (one,) = compare(OURS, [published(0.705, 0.01)])
    two = compare(OURS, [published(0.705, 0.01), published(0.60, 0.001, source="another paper")])[0]
    assert one.test is not None
    assert two.test is not None
    assert one.test.interval == two.test.interval == pytest.approx(alone.interval(0.1))
    # Two tests of a mean, within the margin and beyond it.
    assert one.test.p_equivalent == pytest.approx(2 * alone.p_equivalent(MARGIN))
    assert two.test.p_equivalent == pytest.approx(4 * alone.p_equivalent(MARGIN))


def test_an_unknown_number_of_runs_is_the_fewest_that_have_a_deviation() -> None:
    (known,) = compare(OURS, [published(0.705, 0.01, repeats=2)])
    (unknown,) = compare(OURS, [published(0.705, 0.01, repeats=None)])
    assert known.test == unknown.test
    assert compare(OURS, [published(0.705, 0.01)])[0].test != unknown.test


def test_one_seed_is_not_tested() -> None:
    (comparison,) = compare([make_row()], [published(0.1, 0.01)])
    assert comparison.test is None
    assert comparison.verdict is Verdict.ONE_SEED
    assert comparison.deviations == pytest.approx(40)


def test_what_does_not_vary_is_not_tested() -> None:
    (comparison,) = compare(rows(0.8, 0.8), [published(0.78, 0.0)])
    assert comparison.verdict is Verdict.NO_SPREAD
    (comparison,) = compare(rows(0.8, 0.8, 0.8), [published(0.78, 0.001)])
    assert comparison.verdict is Verdict.EQUIVALENT


def test_deviations_are_the_published_ones_and_never_ours() -> None:
    (comparison,) = compare(rows(0.5, 0.6), [published(0.6, 0.04)])
    assert comparison.deviations == pytest.approx(-1.25)
    for deviation in (None, 0.0):
        (comparison,) = compare(rows(0.4, 0.5, 0.6), [published(0.25, deviation)])
        assert comparison.deviations is None


@pytest.mark.parametrize(
    "change",
    [
        {"alpha": 0.2},
        {"num_clients": 6},
        {"model": "cnn"},
        {"dataset": "svhn"},
        {"method": "dense"},
        {"partition": "paper"},
    ],
)
def test_other_settings_are_not_compared(change: dict[str, object]) -> None:
    assert compare([make_row()], [published(0.5, 0.1)])
    assert not compare([make_row()], [published(0.5, 0.1, **change)])


def test_clients_with_another_objective_are_not_compared() -> None:
    others = [make_row(seed=seed, accuracy=0.7, objective="fedprox") for seed in range(5)]
    assert compare(others, [published(0.7, 0.01)]) == ()
    assert not_run(others, [published(0.7, 0.01)]) == ["mnist, mlp, 5 clients, α = 0.1"]
    assert len(compare([*OURS, *others], [published(0.7, 0.01)])) == 1


def test_several_rounds_are_not_compared() -> None:
    assert not compare([make_row(num_rounds=2)], [published(0.5, 0.1)])


def test_two_papers_give_two_comparisons() -> None:
    both = [published(0.5, 0.1), published(0.3, None, source="another paper")]
    assert [one.published.source for one in compare([make_row()], both)] == ["a paper", "another paper"]


def test_what_is_published_and_did_not_run_is_listed() -> None:
    own = [make_row(), make_row(num_clients=10)]
    absent = [published(0.5, 0.1, num_clients=50, alpha=alpha) for alpha in (0.5, 10)]
    absent += [published(0.5, 0.1, dataset="svhn", num_clients=clients) for clients in (5, 20)]
    missing = [published(0.5, 0.1, method="dense"), published(0.5, 0.1, method="dense", num_clients=10)]
    assert not_run(own, [published(0.5, 0.1), *absent, *missing]) == [
        "mnist, mlp, 50 clients, α = 0.5, 10",
        "svhn, mlp, 5, 20 clients, α = 0.1",
        "dense in 2 settings that ran",
    ]
    assert not_run(own, [missing[0], replace(missing[0], table="another")]) == ["dense in 1 setting that ran"]
    assert not_run(own, [published(0.5, 0.1)]) == []
    assert not_run(own, [published(0.5, 0.1, partition="column", alpha=None)]) == ["mnist, mlp, 5 clients"]


def test_only_clients_that_see_images_as_they_are_are_compared() -> None:
    turned = [make_row(seed=seed, accuracy=0.7, shift="rotation", shift_strength=45.0) for seed in range(5)]
    assert compare(turned, [published(0.7, 0.01)]) == ()
    assert len(compare([*OURS, *turned], [published(0.7, 0.01)])) == 1
    assert not_run(turned, [published(0.7, 0.01)]) == ["mnist, mlp, 5 clients, α = 0.1"]


REPORTED = [path for path in sorted((ROOT / "configs").glob("*.yaml")) if "\n  published: " in path.read_text()]


@pytest.mark.parametrize("config", REPORTED, ids=lambda path: path.stem)
def test_a_configuration_that_names_a_table_has_rows_beside_it(config: Path) -> None:
    settings = load(config)
    assert isinstance(settings, BenchmarkSettings)
    tables = published_tables(ROOT / "reports" / "published_results.csv", settings.report.published or ())
    there = {(one.dataset, one.model, one.partition, one.num_clients, one.alpha, one.method) for one in tables}
    cells = [(cell.dataset, cell.model, cell.scheme, cell.clients, cell.alpha) for cell in settings.seeded_settings()]
    assert there & {(*cell, label) for cell in cells for label in settings.methods}


def test_what_ran_over_rounds_is_not_beside_published_numbers_and_is_said_not_to_have_run() -> None:
    rows = [make_row(seed=seed, num_rounds=5) for seed in range(2)]
    assert compare(rows, [published(0.5, 0.01)]) == ()
    assert len(not_run(rows, [published(0.5, 0.01)])) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"server_optimiser": "fedadam"},
        {"cohort": 2},
        {"unseen_clients": 1},
        {"train_size": 100},
        {"failed_clients": [0]},
        {"held_out": 100},
        {"epsilon": 1.0},
    ],
)
def test_federations_that_papers_do_not_report_are_not_compared(changes: dict[str, object]) -> None:
    assert compare([make_row(seed=seed, **changes) for seed in range(2)], [published(0.5, 0.01)]) == ()


def test_a_method_that_lacked_a_client_with_any_seed_is_not_compared() -> None:
    first, *others = OURS
    assert compare([first, *others], [published(0.7, 0.01)])
    lacking = replace(others[-1], failed_clients=[1])
    assert compare([first, *others[:-1], lacking], [published(0.7, 0.01)]) == ()
    assert not_run([first, *others], [published(0.7, 0.01)]) == []
    assert not_run([first, *others[:-1], lacking], [published(0.7, 0.01)]) == ["fedavg in 1 setting that ran"]
