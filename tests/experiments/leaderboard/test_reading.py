import json
from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.leaderboard.entries import read_reports
from tests.experiments.leaderboard.boards import scored, write_report


def test_benchmarks_are_read_and_other_experiments_left_out_by_name(tmp_path: Path) -> None:
    write_report(tmp_path, "b", scored("fedavg", 0.5))
    write_report(tmp_path, "a", scored("fedavg", 0.5), scored("kfac", 0.6))
    (tmp_path / "attack").mkdir()
    (tmp_path / "attack/results.json").write_text('[{"experiment": "privacy_attack", "artifact": "key"}]')
    write_report(tmp_path, "search", scored("fedavg", 0.9, held_out=1000))
    (tmp_path / "empty").mkdir()
    reports = read_reports([tmp_path])
    assert [(one.name, len(one.settings)) for one in reports.benchmarks] == [("a", 1), ("b", 1)]
    left_out = [("attack", "privacy attack"), ("search", "held-out training images")]
    assert [(one.name, one.why) for one in reports.left_out] == left_out


def test_of_reports_with_one_name_the_first_folders_counts(tmp_path: Path) -> None:
    write_report(tmp_path / "own", "same", scored("kfac", 0.5))
    write_report(tmp_path / "committed", "same", scored("fedavg", 0.5))
    (report,) = read_reports([tmp_path / "own", tmp_path / "committed"]).benchmarks
    assert report.folder == tmp_path / "own/same"


def without(record: dict[str, Any]) -> None:
    del record["upload_bits"]


def of_another_version(record: dict[str, Any]) -> None:
    record["bits"] = record.pop("upload_bits")


def without_words(record: dict[str, Any]) -> None:
    record["method"] = 7


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (without, "row 2 lacks the field 'upload_bits'; allowed: rows with the fields benchmark, dataset"),
        (of_another_version, "row 2 lacks the field 'upload_bits'"),
        (without_words, "row 2, method=7: Input should be a valid string"),
        (lambda record: record.update(version=2), "row 2 has the unknown field 'version'; "),
        (lambda record: record.update(seed=0), "method 'fedavg' has two rows for seed 0 in mnist, mlp"),
    ],
)
def test_a_file_that_is_not_of_this_version_is_refused_in_one_line(tmp_path: Path, harm: Any, said: str) -> None:
    path = write_report(tmp_path, "a", scored("fedavg", 0.5, 0.6))
    records = json.loads(path.read_text())
    harm(records[1])
    path.write_text(json.dumps(records))
    with pytest.raises(InputError) as caught:
        read_reports([tmp_path])
    assert str(caught.value).startswith(str(path))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [("[", "no list of result rows: Invalid JSON"), ("[]", "has no rows; allowed: at least one"), ("3", "no list")],
)
def test_a_file_without_rows_is_refused(tmp_path: Path, text: str, said: str) -> None:
    write_report(tmp_path, "a", scored("fedavg", 0.5)).write_text(text)
    with pytest.raises(InputError, match=said):
        read_reports([tmp_path])


def test_folders_without_a_benchmark_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no results of a benchmark in .*; allowed: folders that hold NAME"):
        read_reports([tmp_path])
    with pytest.raises(InputError, match=r"reports='.*absent' is no folder; allowed: folders of reports"):
        read_reports([tmp_path / "absent"])
    with pytest.raises(InputError, match="no results of a benchmark in no folder"):
        read_reports([])
