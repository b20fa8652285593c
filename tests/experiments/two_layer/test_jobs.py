"""The two-layer experiment through its jobs, without orchestration."""

from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.engine.errors import DivergedClientError
from fedfisher_core.engine.performing import execute
from fedfisher_core.engine.plan import Outcome
from fedfisher_core.engine.store import Artifact, open_store
from fedfisher_core.experiments.two_layer.plan import (
    MeasureSeed,
    TwoLayerPlan,
    make_plan,
    make_rows,
    measure_seed,
    read_seed,
)
from fedfisher_core.experiments.two_layer.settings import TwoLayerSettings
from fedfisher_core.settings.reading import validate

TINY: dict[str, Any] = {
    "clients": 2,
    "samples": 4,
    "dimensions": 3,
    "widths": [4, 8],
    "steps_of_widths": 6,
    "steps": [1, 6],
    "width_of_steps": 8,
    "seeds": [0, 1],
}


def plan(folder: Path, run: dict[str, Any] | None = None, **changes: Any) -> TwoLayerPlan:
    content = {
        "name": "tiny",
        "two_layer": TINY | changes,
        "run": {"store": str(folder / "artifacts"), **(run or {})},
    }
    return make_plan(validate(TwoLayerSettings, content))


def walk(made: TwoLayerPlan) -> Outcome:
    return execute(made.jobs, open_store(made.settings.run.store))


def job(made: TwoLayerPlan, seed: int) -> MeasureSeed:
    return next(one for one in made.seeds if one.seed == seed)


def measured(folder: Path, seed: int) -> Artifact:
    """Do the work of the tiny experiment, or what is left of it, and find one of its seeds."""
    made = plan(folder)
    return walk(made).artifacts[job(made, seed).name]


def key(made: TwoLayerPlan, seed: int) -> str:
    return job(made, seed).key


def written(folder: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in (folder / "artifacts").glob("*/*/manifest.json")}


def test_what_is_stored_is_what_was_measured_and_is_not_measured_again(tmp_path: Path) -> None:
    first = measured(tmp_path, 1)
    before = written(tmp_path)
    assert read_seed(first) == measure_seed(plan(tmp_path).settings.two_layer, 1)
    assert measured(tmp_path, 1) == first
    assert written(tmp_path) == before
    assert len(before) == 2


def test_a_seed_more_costs_that_seed_alone(tmp_path: Path) -> None:
    walk(plan(tmp_path))
    before = written(tmp_path)
    walk(plan(tmp_path, seeds=[0, 1, 2]))
    after = written(tmp_path)
    assert len(after) == len(before) + 1
    assert {name: after[name] for name in before} == before


def test_rows_are_of_all_seeds(tmp_path: Path) -> None:
    made = plan(tmp_path)
    outcome = walk(made)
    rows = make_rows(made, outcome)
    assert len(rows) == 2 * 4 * 3
    for seed in (0, 1):
        own = [row for row in rows if row.seed == seed]
        assert {row.artifact for row in own} == {outcome.artifacts[job(made, seed).name].key}
        errors = read_seed(outcome.artifacts[job(made, seed).name])
        wide = [row for row in own if (row.curve, row.width, row.method) == ("width", 8, "fedavg")]
        assert [row.training_error for row in wide] == [errors.widths[1].fedavg]


@pytest.mark.parametrize(
    "changes",
    [
        {"seeds": [1, 7]},
        {"run": {"workers": 3, "retries": 2, "timeout_seconds": 9}},
    ],
)
def test_settings_that_can_not_change_a_seed_share_it(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert key(plan(tmp_path, **changes), 1) == key(plan(tmp_path), 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"clients": 3},
        {"samples": 5},
        {"dimensions": 2},
        {"model_heterogeneity": 2.0},
        {"data_heterogeneity": 2.0},
        {"noise": 0.1},
        {"learning_rate": 0.4},
        {"widths": [4]},
        {"steps_of_widths": 7},
        {"steps": [1, 5]},
        {"width_of_steps": 9},
        {"cutoff": 0.01},
        {"run": {"torch_threads": 2}},
    ],
)
def test_a_setting_that_can_change_a_seed_measures_it_anew(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert key(plan(tmp_path, **changes), 0) != key(plan(tmp_path), 0) != key(plan(tmp_path), 1)


def test_a_damaged_seed_is_measured_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = measured(tmp_path, 0)
    errors = read_seed(first)
    (first.path / "errors.json").write_text("{}")
    again = measured(tmp_path, 0)
    assert "computed again" in caplog.text
    assert (again, read_seed(again)) == (first, errors)


def test_nothing_is_stored_of_a_seed_that_diverged(tmp_path: Path) -> None:
    with pytest.raises(DivergedClientError, match="seed=0"):
        walk(plan(tmp_path, learning_rate=1e30))
    assert not written(tmp_path)
