from dataclasses import replace
from pathlib import Path

import pytest

from fedfisher_core.experiments.benchmark.rows import Role, Row
from fedfisher_core.experiments.leaderboard.entries import make_entries, read_reports
from fedfisher_core.experiments.leaderboard.page import lead
from fedfisher_core.experiments.leaderboard.ranking import above_best, compare_tracks, in_reports, over_seeds
from tests.experiments.leaderboard.boards import entries_of, scored, write_board, write_report


def test_the_first_of_a_track_is_compared_seed_by_seed_where_both_have_every_seed(tmp_path: Path) -> None:
    def rows(method: str, alpha: int, *accuracies: float, **changes: object) -> list[Row]:
        return scored(method, *accuracies, alpha=float(alpha), track="best_effort", **changes)

    groups = [
        group
        for alpha in range(1, 8)
        for group in (
            rows("a", alpha, 0.8, 0.9, 0.85 + 0.01 * alpha),
            # One of its seeds ended early in the last setting.
            rows("b", alpha, *[0.5, 0.6, 0.55][: 1 if alpha == 7 else 3]),
            rows("ensemble", alpha, 0.7, 0.7, 0.7, num_networks=5, reference=True),
        )
    ]
    write_report(tmp_path, "one", *groups)
    (found,) = compare_tracks(make_entries(read_reports([tmp_path]).benchmarks))
    ensemble, other = found.over_seeds
    assert (ensemble.other, ensemble.kind, ensemble.num_settings) == ("ensemble", Role.ENSEMBLE, 7)
    assert ensemble.difference.mean == pytest.approx((0.1 + 0.2 + 0.19) / 3)
    assert (other.other, other.num_settings, other.difference.n) == ("b", 6, 3)
    assert other.difference.mean == pytest.approx((0.3 + 0.3 + 0.335) / 3)
    assert other.difference.interval is not None


def test_a_track_of_reports_without_a_common_seed_compares_nothing(tmp_path: Path) -> None:
    for name, first in (("one", 0), ("two", 3)):
        rows = [
            replace(row, seed=row.seed + first)
            for method, base in (("a", 0.8), ("b", 0.7))
            for row in scored(method, base, base + 0.01, base + 0.02, track="best_effort")
        ]
        write_report(tmp_path, name, rows)
    (found,) = compare_tracks(make_entries(read_reports([tmp_path]).benchmarks))
    assert found.over_seeds == ()
    assert lead(found) == "Best effort: a has the best mean rank. No other method has its seeds in a setting."


def test_a_setting_of_one_seed_takes_no_seed_from_the_others(tmp_path: Path) -> None:
    groups = [
        scored(method, *accuracies[: 1 if alpha == 3 else 3], alpha=float(alpha), track="best_effort")
        for alpha in range(1, 4)
        for method, accuracies in {"a": (0.9, 0.8, 0.85), "b": (0.5, 0.6, 0.55)}.items()
    ]
    write_report(tmp_path, "one", *groups)
    (found,) = compare_tracks(make_entries(read_reports([tmp_path]).benchmarks))
    (other,) = found.over_seeds
    assert (other.num_settings, other.difference.n) == (2, 3)
    assert [(one.num_settings, one.difference.n) for one in found.above_best] == [(2, 3), (2, 3)]
    assert lead(found) == (
        "Best effort: a leads the only other method. It is 30.0 points (5.2 to 54.8) above b over 2 settings, the next."
    )


def test_one_seed_claims_nothing(tmp_path: Path) -> None:
    groups = [scored(method, one, alpha=0.1, track="best_effort") for method, one in (("a", 0.9), ("b", 0.5))]
    write_report(tmp_path, "one", *groups)
    (found,) = compare_tracks(make_entries(read_reports([tmp_path]).benchmarks))
    assert lead(found) == (
        "Best effort: a has the best mean rank; it is 40.0 points above b over 1 setting. One seed shows no lead."
    )


def test_the_first_of_a_track_is_compared_with_the_best_other_of_each_setting(tmp_path: Path) -> None:
    others = {"mnist": {"b": (0.6, 0.7), "c": (0.5, 0.5)}, "svhn": {"b": (0.1, 0.1), "c": (0.4, 0.7)}}
    groups = [
        scored(method, *accuracies, alpha=float(alpha), dataset=dataset, track="best_effort")
        for alpha in range(1, 4)
        for dataset, methods in others.items()
        for method, accuracies in {"a": (0.9, 0.8), **methods}.items()
    ]
    write_report(tmp_path, "one", *groups)
    (found,) = compare_tracks(make_entries(read_reports([tmp_path]).benchmarks))
    assert found.first == "a"
    # Of MNIST the best other is b, of SVHN c: by seed 0.3 and 0.1, and 0.5 and 0.1.
    expected = {None: (6, 0.25), "mnist": (3, 0.2), "svhn": (3, 0.3)}
    assert {one.dataset for one in found.above_best} == expected.keys()
    for one in found.above_best:
        count, mean = expected[one.dataset]
        assert (one.num_settings, one.difference.n) == (count, 2)
        assert one.difference.mean == pytest.approx(mean)


def test_the_first_of_a_track_is_looked_at_in_each_report(tmp_path: Path) -> None:
    def rows(alpha: int, **accuracies: tuple[float, ...]) -> list[Row]:
        kinds = {"ensemble": {"reference": True, "num_networks": 5}}
        return [
            row
            for method, own in accuracies.items()
            for row in scored(method, *own, alpha=float(alpha), track="best_effort", **kinds.get(method, {}))
        ]

    many = [rows(alpha, a=(0.9, 0.8), b=(0.6, 0.7), c=(0.5, 0.5), ensemble=(0.7, 0.7)) for alpha in range(1, 9)]
    # In the last setting the other is as high, which is no highest mean.
    few = [rows(1, a=(0.6, 0.7), c=(0.5, 0.5)), rows(2, a=(0.6, 0.7), c=(0.7, 0.6))]
    reports = {"many": [row for own in many for row in own], "few": [row for own in few for row in own]}
    html = write_board(tmp_path, reports)
    (found,) = compare_tracks(make_entries(read_reports([tmp_path]).benchmarks))
    assert found.first == "a"
    of_few, of_many = found.in_reports
    assert (of_few.report, of_few.num_highest, of_few.num_settings, of_few.ensembles) == ("few", 1, 2, ())
    assert of_few.nearest is not None
    assert (of_few.nearest.other, of_few.nearest.difference.mean) == ("c", pytest.approx(0.075))
    assert (of_many.report, of_many.num_highest, of_many.num_settings) == ("many", 8, 8)
    assert of_many.nearest is not None
    assert (of_many.nearest.other, of_many.nearest.difference.mean) == ("b", pytest.approx(0.2))
    (ensemble,) = of_many.ensembles
    assert (ensemble.other, ensemble.difference.mean) == ("ensemble", pytest.approx(0.15))
    assert "8 of 8" in html
    assert "1 of 2" in html


def test_the_nearest_of_a_report_is_any_that_ran_there(tmp_path: Path) -> None:
    def rows(alpha: int, **accuracies: tuple[float, ...]) -> list[Row]:
        return [
            row
            for method, own in accuracies.items()
            for row in scored(method, *own, alpha=float(alpha), track="best_effort")
        ]

    many = [rows(alpha, a=(0.9, 0.8), b=(0.6, 0.7), c=(0.5, 0.5)) for alpha in range(1, 9)]
    # Too few settings for a rank, and above the first of the track in each.
    few = [rows(alpha, a=(0.6, 0.7), c=(0.5, 0.5), d=(0.9, 0.9)) for alpha in (1, 2)]
    write_report(tmp_path, "many", *many)
    write_report(tmp_path, "few", *few)
    (found,) = compare_tracks(make_entries(read_reports([tmp_path]).benchmarks))
    assert (found.first, "d" in {one.other for one in found.over_seeds}) == ("a", False)
    of_few, _ = found.in_reports
    assert (of_few.report, of_few.num_highest) == ("few", 0)
    assert of_few.nearest is not None
    assert (of_few.nearest.other, of_few.nearest.difference.mean) == ("d", pytest.approx(-0.25))


def test_settings_in_which_both_lack_a_seed_are_not_compared(tmp_path: Path) -> None:
    short = [scored("fedavg", 0.1, 0.2), scored("regmean", 0.1, 0.3)]
    entries = list(entries_of(tmp_path, *short, scored("ties", 0.1, 0.1, 0.1)).values())
    assert over_seeds(entries, ["fedavg", "regmean", "ties"]) == ()
    entries = list(entries_of(tmp_path, *short).values())
    (other,) = over_seeds(entries, ["fedavg", "regmean"])
    assert (other.other, other.difference.n) == ("regmean", 2)


def test_the_best_other_is_one_that_has_every_seed(tmp_path: Path) -> None:
    groups = [scored("fedavg", 0.5, 0.6, 0.7), scored("ties", 0.9, 0.9), scored("regmean", 0.4, 0.5, 0.6)]
    everywhere, *_ = above_best(list(entries_of(tmp_path, *groups).values()), "fedavg")
    assert (everywhere.difference.mean, everywhere.difference.n) == (pytest.approx(0.1), 3)


def test_the_nearest_is_among_those_that_share_the_most_settings(tmp_path: Path) -> None:
    both = [
        rows
        for clients in (5, 10)
        for rows in (
            scored("fedavg", 0.5, 0.6, num_clients=clients),
            scored("regmean", 0.3, 0.4, num_clients=clients),
        )
    ]
    write_report(tmp_path, "one", *both, scored("ties", 0.49, 0.59, num_clients=5))
    (found,) = in_reports(make_entries(read_reports([tmp_path]).benchmarks), "fedavg")
    assert found.nearest is not None
    assert (found.nearest.other, found.nearest.num_settings) == ("regmean", 2)
