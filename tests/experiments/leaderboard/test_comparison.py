"""Two methods in pairs, with numbers by hand."""

from pathlib import Path

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.leaderboard.entries import BenchmarkReport, read_reports
from fedfisher_core.experiments.leaderboard.ranking import common_settings, comparison_tables
from tests.experiments.leaderboard.boards import scored, write_report


@pytest.fixture
def reports(tmp_path: Path) -> tuple[BenchmarkReport, ...]:
    write_report(tmp_path, "one", scored("a", 0.6, 0.8), scored("b", 0.5, 0.5), scored("alone", 0.9, seed=7))
    write_report(tmp_path, "two", scored("a", 0.5, 0.6, alpha=0.5), scored("b", 0.5, 0.7, 0.1, alpha=0.5))
    # The same results as in the report "one", of which it lacks a seed.
    write_report(tmp_path, "again", scored("a", 0.6), scored("b", 0.5))
    return read_reports([tmp_path]).benchmarks


def test_settings_and_seeds_that_both_have_are_compared(reports: tuple[BenchmarkReport, ...]) -> None:
    compared = common_settings(reports, "a", "b")
    assert [(one.report, one.setting.alpha, sorted(one.first)) for one in compared] == [
        ("one", 0.1, [0, 1]),
        ("two", 0.5, [0, 1]),
    ]
    each, together = comparison_tables(compared, "a", "b")
    # Differences by seed: 0.1 and 0.3, then 0 and -0.1. Student's quantile for two seeds is 12.706.
    assert [list(line[2:]) for line in each.lines] == [
        ["70.00", "50.00", "+20.00", "−107.06 to +147.06", "2"],
        ["55.00", "60.00", "−5.00", "−68.53 to +58.53", "2"],
    ]
    # By seed, the means over both settings differ by 0.05 and 0.1.
    assert [line[1] for line in together.lines] == ["+7.50", "2", "−24.27 to +39.27", "2", "1", "1", "0"]


def test_a_setting_of_one_seed_takes_no_seed_from_the_others(tmp_path: Path) -> None:
    write_report(tmp_path, "one", scored("a", 0.6, 0.8), scored("b", 0.5, 0.5))
    write_report(tmp_path, "two", scored("a", 0.9, alpha=0.5), scored("b", 0.1, alpha=0.5))
    _, together = comparison_tables(common_settings(read_reports([tmp_path]).benchmarks, "a", "b"), "a", "b")
    assert [line[1] for line in together.lines][:4] == ["+20.00", "1", "−107.06 to +147.06", "2"]


def test_the_other_way_round_the_signs_change(reports: tuple[BenchmarkReport, ...]) -> None:
    _, together = comparison_tables(common_settings(reports, "b", "a"), "b", "a")
    assert [line[1] for line in together.lines][:3] == ["−7.50", "2", "−39.27 to +24.27"]


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("a", "alone", "'a' and 'alone' have no setting and seed in common in 3 reports; allowed: reports in which"),
        ("a", "alones", "method 'alones' is in none of 3 reports; did you mean 'alone'?"),
        ("a", "a", "method 'a' is compared with itself"),
    ],
)
def test_what_can_not_be_compared_is_refused(
    reports: tuple[BenchmarkReport, ...], first: str, second: str, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        common_settings(reports, first, second)


def test_another_method_under_the_same_label_is_not_the_same(tmp_path: Path) -> None:
    official = {"method_settings": {"method": "ma_echo_official"}}
    write_report(tmp_path, "one", scored("ma_echo", 0.5), scored("b", 0.4))
    write_report(tmp_path, "two", scored("ma_echo", 0.9, alpha=0.5, **official), scored("b", 0.4, alpha=0.5))
    read = read_reports([tmp_path]).benchmarks
    for name, alpha in (("ma_echo", 0.1), ("ma_echo (ma_echo_official)", 0.5)):
        assert [one.setting.alpha for one in common_settings(read, name, "b")] == [alpha]
