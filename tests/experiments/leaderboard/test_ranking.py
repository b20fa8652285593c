from pathlib import Path

import pytest

from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.leaderboard.entries import Entry, make_entries, read_reports
from fedfisher_core.experiments.leaderboard.ranking import MeanRanks, comparable_methods, compare_tracks, mean_ranks_of
from tests.experiments.leaderboard.boards import scored, write_report


def board(folder: Path, *settings: dict[str, float]) -> tuple[Entry, ...]:
    """A setting each of accuracies by method."""
    rows = [
        row
        for alpha, accuracies in enumerate(settings, start=1)
        for method, accuracy in accuracies.items()
        for row in scored(method, accuracy, alpha=float(alpha), reference=method == "ensemble")
    ]
    write_report(folder, "one", rows)
    return make_entries(read_reports([folder]).benchmarks)


def test_mean_ranks_are_over_the_settings_that_all_share(tmp_path: Path) -> None:
    entries = board(
        tmp_path,
        {"a": 0.9, "b": 0.8, "c": 0.7, "ensemble": 1.0},
        {"a": 0.5, "b": 0.5, "c": 0.6, "other": 0.9},
        {"a": 0.1, "c": 0.2},
    )
    assert mean_ranks_of(entries, ["c", "b", "a"]) == MeanRanks({"a": 1.75, "c": 2.0, "b": 2.25}, 2)
    # What is not compared takes no rank away.
    assert mean_ranks_of(entries, ["a", "c"]) == MeanRanks({"c": 4 / 3, "a": 5 / 3}, 3)
    assert mean_ranks_of(entries, ["c", "other"]) == MeanRanks({"other": 1.0, "c": 2.0}, 1)
    assert mean_ranks_of(entries, ["a", "absent"]) == MeanRanks({}, 0)
    assert mean_ranks_of(entries, ["ensemble"]) == MeanRanks({}, 0)


def test_the_methods_with_the_most_ranks_are_chosen(tmp_path: Path) -> None:
    many = {"a": 0.1, "b": 0.2}
    entries = board(tmp_path, many, many, many, {**many, "c": 0.3}, {"d": 0.3, "ensemble": 1.0})
    # Two methods share four settings; with the third, one.
    assert comparable_methods(entries) == ("a", "b")
    assert comparable_methods(board(tmp_path / "other", {"b": 0.1, "a": 0.2, "c": 0.3})) == ("a", "b", "c")
    assert comparable_methods(board(tmp_path / "apart", {"ensemble": 0.2})) == ()
    # Three settings have d without b, and three b without d. The two that b shares with c and e still count.
    all_four = {"a": 0.1, "b": 0.2, "c": 0.3, "e": 0.4}
    few = board(tmp_path / "few", *[{"a": 0.1, "d": 0.2}] * 3, many, all_four, all_four)
    assert comparable_methods(few) == ("a", "b", "c", "e")
    assert mean_ranks_of((), ()) == mean_ranks_of(entries, ()) == MeanRanks({}, 0)


def test_a_track_is_compared_over_all_of_its_reports(tmp_path: Path) -> None:
    def rows(method: str, accuracy: float, track: str | None) -> list[Row]:
        return [row for alpha in range(4) for row in scored(method, accuracy, alpha=alpha + 1.0, track=track)]

    for report, best in (("one", 0.9), ("two", 0.8)):
        write_report(tmp_path, report, rows("a", best, "best_effort"), rows("b", 0.7, "best_effort"))
    write_report(tmp_path, "untracked", rows("b", 0.9, None), rows("a", 0.1, None))
    write_report(tmp_path, "alone", rows("a", 0.9, "as_published"))
    (found,) = compare_tracks(make_entries(read_reports([tmp_path]).benchmarks))
    assert (found.track, found.first, found.num_settings) == ("best_effort", "a", 8)
    (other,) = found.over_seeds
    assert (other.other, other.num_settings, other.difference.mean) == ("b", 8, pytest.approx(0.15))


def test_a_track_without_a_single_network_is_compared_with_none(tmp_path: Path) -> None:
    rows = [row for alpha in range(8) for row in scored("ensemble", 0.9, alpha=alpha + 1.0, reference=True, track="x")]
    write_report(tmp_path, "one", rows)
    assert compare_tracks(make_entries(read_reports([tmp_path]).benchmarks)) == ()


def test_a_method_that_lacks_a_seed_of_a_setting_is_not_ranked_there(tmp_path: Path) -> None:
    # With both of b's seeds, a is above it; its third, where b failed, is not b's win.
    groups = [
        group
        for alpha in (1.0, 2.0)
        for group in (scored("a", 0.9, 0.9, 0.3, alpha=alpha), scored("b", 0.8, 0.8, alpha=alpha))
    ]
    write_report(tmp_path, "one", *groups, scored("a", 0.5, alpha=3.0), scored("b", 0.4, alpha=3.0))
    entries = make_entries(read_reports([tmp_path]).benchmarks)
    assert mean_ranks_of(entries, ["a", "b"]) == MeanRanks({"a": 1.0, "b": 2.0}, 1)
    assert comparable_methods(entries) == ("a",)
