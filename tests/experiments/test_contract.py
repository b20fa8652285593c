"""What an experiment gives, and how what is missing is refused."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.contract import Experiment, Plan, experiments, late
from fedfisher_core.reporting.rows import write_rows
from fedfisher_core.reporting.runs import Runs
from fedfisher_core.settings import ExperimentSettings


@dataclass(frozen=True)
class Line:
    """A row."""

    value: int
    artifact: str


def with_row(row: Any) -> Experiment[Any, Any, Any]:
    return Experiment(
        settings=ExperimentSettings,
        row=row,
        plan=lambda settings: Plan(jobs=[]),
        rows=lambda plan, outcome: [],
        files=lambda plan, outcome, rows, page: {},
        runs=lambda plan, outcome, rows: Runs(single=[], summary=[]),
        tables=lambda rows: [],
    )


def test_an_experiment_reads_rows_of_its_own(tmp_path: Path) -> None:
    path, _ = write_rows([Line(3, "key")], tmp_path)
    assert with_row(Line).read(path) == [Line(3, "key")]
    path.write_text(path.read_text().replace("3", '"three"'))
    with pytest.raises(InputError, match="no list of result rows: row 1, value='three'"):
        with_row(Line).read(path)


@dataclass(frozen=True)
class Traceless:
    """A row that does not say what its numbers were read from."""

    value: int


@pytest.mark.parametrize("row", [Traceless, int])
def test_rows_without_an_artifact_are_refused(row: type) -> None:
    with pytest.raises(InputError, match=f"row={row.__name__}; allowed: data classes with the field 'artifact'"):
        with_row(row)


def test_a_late_function_is_imported_when_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "drawn_late.py").write_text("def double(number):\n    return 2 * number\n")
    monkeypatch.syspath_prepend(tmp_path)
    double = late("drawn_late:double")
    assert "drawn_late" not in sys.modules
    assert double(21) == 42


@pytest.mark.parametrize("name", ["no_such_module:double", "json:no_such_function", "json"])
def test_a_late_function_that_is_not_there_is_refused_by_name(name: str) -> None:
    with pytest.raises(InputError, match=f"function '{name}' can't be imported"):
        late(name)()


@pytest.mark.parametrize("name", ["benchmark", "fedfish_toy", "privacy_attack", "two_layer"])
def test_the_settings_of_an_experiment_name_it(name: str) -> None:
    assert experiments.get(name).settings.model_fields["experiment"].default == name
