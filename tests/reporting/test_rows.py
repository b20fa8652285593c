import csv
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.reporting.rows import (
    experiment_of_rows,
    read_artifact_keys,
    read_rows,
    write_file,
    write_rows,
)


@dataclass(frozen=True)
class Line:
    """A row of an experiment that there is not."""

    experiment: str
    value: float | None
    more: dict[str, Any]
    artifact: str


LINES = [Line("odd", 0.1 + 0.2, {"a": [1, "ü"]}, "key-1"), Line("odd", None, {}, "key-2")]


def test_rows_of_any_type_survive_the_json_file_in_their_order(tmp_path: Path) -> None:
    path, _ = write_rows(LINES[::-1], tmp_path / "new" / "folder")
    assert read_rows(path, Line) == LINES[::-1]
    assert len(path.read_text().splitlines()) == 2 + len(LINES)


def test_the_csv_has_a_column_a_field(tmp_path: Path) -> None:
    _, path = write_rows(LINES, tmp_path)
    with path.open(encoding="utf-8", newline="") as file:
        first, second = csv.DictReader(file)
    assert list(first) == ["experiment", "value", "more", "artifact"]
    assert float(first["value"]) == 0.1 + 0.2
    assert json.loads(first["more"]) == {"a": [1, "ü"]}
    assert second["value"] == ""


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_text_of_the_csv_is_a_formula(tmp_path: Path, text: str) -> None:
    written = [Line(text, -0.5, {}, "key=1")]
    rows, path = write_rows(written, tmp_path)
    with path.open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row == {"experiment": f"'{text}".replace("\r", " "), "value": "-0.5", "more": "{}", "artifact": "key=1"}
    assert read_rows(rows, Line) == written


def test_a_number_that_json_has_not_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_rows([Line("odd", float("nan"), {}, "key")], tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_rows_of_another_type_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text('[{"experiment": "odd"}]')
    lacks = "row 1 lacks the field 'value'; allowed: rows with the fields experiment, value, more, artifact"
    with pytest.raises(InputError, match=f"is no list of result rows: {lacks}"):
        read_rows(tmp_path / "results.json", Line)
    with pytest.raises(InputError, match="no results at"):
        read_rows(tmp_path / "absent.json", Line)


def test_any_rows_tell_their_experiment_and_their_artifacts(tmp_path: Path) -> None:
    path, _ = write_rows(LINES, tmp_path)
    assert experiment_of_rows(path) == "odd"
    assert read_artifact_keys(path) == ["key-1", "key-2"]


@pytest.mark.parametrize(
    "text", ['[{"benchmark": "demo"}]', "[]", "{", '"two_layer"', "[1]", '[{"experiment": []}]', "[" * 100_000]
)
def test_rows_without_an_experiment_tell_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "results.json").write_text(text)
    assert experiment_of_rows(tmp_path / "results.json") is None
    assert experiment_of_rows(tmp_path / "absent.json") is None


@pytest.mark.timeout(120)
def test_a_pipe_is_no_results_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "results.json")
    assert experiment_of_rows(tmp_path / "results.json") is None
    with pytest.raises(InputError, match="no results at"):
        read_rows(tmp_path / "results.json", Line)


@pytest.mark.parametrize("text", ['[{"benchmark": "demo"}]', "{", '"two_layer"', "[" * 100_000])
def test_rows_that_name_no_artifact_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(InputError, match="no list of result rows"):
        read_artifact_keys(tmp_path / "results.json")


def test_a_file_is_replaced_and_nothing_else_remains(tmp_path: Path) -> None:
    for content in (b"old", b"new"):
        path = write_file(tmp_path / "inner" / "file", content)
    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("1" + 400 * "0", r"10000000000000000000\.\.\. of 401 digits is too large; allowed: up to 1e\+100"),
        ("1" + 5000 * "0", "number out of range|Exceeds the limit"),
        ("-1e101", r"-1e101 is too large; allowed: up to 1e\+100"),
        ("NaN", "NaN is no finite number"),
        ("-Infinity", "-Infinity is no finite number"),
        ("1e400", "1e400 is no finite number"),
        ("[" * 100_000 + "]" * 100_000, "recursion limit exceeded|it is nested too deeply"),
        ('"half"', "row 1, value='half': "),
        ("[0.5]", r"row 1, value=\[0\.5\]: "),
        ('0.5, "value": 1', "the key 'value' is there twice"),
        ('"\\', "Invalid|Unterminated"),
    ],
)
def test_values_that_no_report_can_show_are_refused_in_one_line(tmp_path: Path, value: str, said: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(f'[{{"experiment": "odd", "value": {value}, "more": {{}}, "artifact": "key"}}]')
    with pytest.raises(InputError, match=f"^{path} is no list of result rows: .*({said})") as caught:
        read_rows(path, Line)
    assert "\n" not in str(caught.value)
    assert experiment_of_rows(path) in ("odd", None)


def test_numbers_inside_of_a_field_are_bounded_as_well(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text('[{"experiment": "odd", "value": 1, "more": {"a": [1e300]}, "artifact": "key"}]')
    with pytest.raises(InputError, match="1e300 is too large"):
        read_rows(path, Line)


def test_a_file_that_no_report_writes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    with path.open("wb") as file:
        file.truncate(2**28 + 1)
    with pytest.raises(InputError, match=r"results\.json has 268,435,457 bytes; allowed: up to 268,435,456"):
        read_rows(path, Line)
    assert experiment_of_rows(path) is None
