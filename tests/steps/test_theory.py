"""The two-layer experiment through its step, without orchestration."""

from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.configuration import validate
from fedfisher_core.errors import DivergedClientError
from fedfisher_core.experiments.two_layer.jobs import TwoLayerContext, measure_seed, read_seed
from fedfisher_core.experiments.two_layer.settings import TwoLayerBenchmark
from fedfisher_core.theory import experiment

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


def context(folder: Path, run: dict[str, Any] | None = None, **changes: Any) -> TwoLayerContext:
    content = {
        "name": "tiny",
        "two_layer": TINY | changes,
        "run": {"store": str(folder / "artifacts"), **(run or {})},
    }
    return TwoLayerContext(validate(TwoLayerBenchmark, content))


def written(folder: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in (folder / "artifacts").glob("*/*/manifest.json")}


def test_what_is_stored_is_what_was_measured_and_is_not_measured_again(tmp_path: Path) -> None:
    first = measure_seed(context(tmp_path), 1)
    before = written(tmp_path)
    assert read_seed(first) == experiment.measure_seed(context(tmp_path).settings.two_layer, 1)
    assert measure_seed(context(tmp_path), 1) == first
    assert written(tmp_path) == before
    assert len(before) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"seeds": [1, 7]},
        {"run": {"workers": 3, "retries": 2, "timeout_seconds": 9}},
    ],
)
def test_settings_that_can_not_change_a_seed_share_it(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert measure_seed(context(tmp_path, **changes), 1) == measure_seed(context(tmp_path), 1)


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
    first = measure_seed(context(tmp_path), 0)
    assert measure_seed(context(tmp_path, **changes), 0).key != first.key
    assert measure_seed(context(tmp_path), 1).key != first.key


def test_a_damaged_seed_is_measured_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = measure_seed(context(tmp_path), 0)
    errors = read_seed(first)
    (first.path / "errors.json").write_text("{}")
    again = measure_seed(context(tmp_path), 0)
    assert "computed again" in caplog.text
    assert (again, read_seed(again)) == (first, errors)


def test_nothing_is_stored_of_a_seed_that_diverged(tmp_path: Path) -> None:
    with pytest.raises(DivergedClientError, match="seed=0"):
        measure_seed(context(tmp_path, learning_rate=1e200), 0)
    assert not written(tmp_path)
