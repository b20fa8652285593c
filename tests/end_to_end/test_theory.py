"""The two-layer experiment as a user runs it, and its runs in MLflow."""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from fedfisher_core.engine.plan import Outcome
from fedfisher_core.experiments.two_layer.page import make_runs
from fedfisher_core.experiments.two_layer.plan import make_plan
from fedfisher_core.experiments.two_layer.rows import TwoLayerRow
from fedfisher_core.experiments.two_layer.settings import TwoLayerSettings
from fedfisher_core.reporting.rows import read_rows
from fedfisher_core.settings.reading import validate
from tasks.record import record
from tests.end_to_end.conftest import Workplace

pytestmark = pytest.mark.end_to_end

SMALL: dict[str, Any] = {
    "experiment": "two_layer",
    "name": "theory",
    "two_layer": {"samples": 5, "widths": [4, 16, 64], "steps": [1, 4, 16], "steps_of_widths": 8, "seeds": [0, 1]},
}
METHODS = ("fedfisher", "fedavg", "local")


def runs(folder: Path, experiment: str) -> dict[str, Run]:
    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    recorded = {str(run.info.run_name): run for run in client.search_runs([found.experiment_id])}
    assert len(recorded) == len(client.search_runs([found.experiment_id]))
    return recorded


def series(folder: Path, run: Run, metric: str) -> list[tuple[int, float]]:
    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    return sorted((point.step, point.value) for point in client.get_metric_history(run.info.run_id, metric))


@pytest.mark.drawn(0)
def test_a_run_measures_reports_and_records_and_a_rerun_adds_nothing(workplace: Workplace) -> None:
    workplace.write("theory.yaml", SMALL)
    out = workplace.run("fedfisher", "run", "theory.yaml").stdout
    assert "mean training error by width (2 seeds)" in out
    assert "results/theory/index.html" in out

    folder = workplace.folder
    rows = read_rows(folder / "results/theory/results.json", TwoLayerRow)
    assert len(rows) == 2 * 6 * 3
    page = (folder / "results/theory/index.html").read_text()
    assert "fedfisher run theory.yaml" in page
    artifacts = workplace.artifacts("two_layer")
    assert {row.artifact for row in rows} == set(artifacts)

    recorded = runs(folder, "theory")
    assert set(recorded) == {f"{method} s={seed}" for method in METHODS for seed in (0, 1)}
    for name, run in recorded.items():
        own = [row for row in rows if f"{row.method} s={row.seed}" == name]
        for curve in ("width", "local_steps"):
            expected = [(row.value, row.training_error) for row in own if row.curve == curve]
            assert series(folder, run, f"training_error_by_{curve}") == expected
        assert run.data.tags["artifact"] == own[0].artifact
        assert run.info.status == "FINISHED"
    summary = runs(folder, "theory-summary")
    assert set(summary) == set(METHODS)
    ((_, first), *_) = series(folder, summary["fedavg"], "training_error_by_width")
    errors = [row.training_error for row in rows if (row.method, row.curve, row.value) == ("fedavg", "width", 4)]
    assert first == pytest.approx(sum(errors) / 2)
    figures = folder / "mlartifacts/theory-summary" / summary["fedavg"].info.run_id / "artifacts/figures"
    assert {path.name for path in figures.iterdir()} == {"error_by_width.png", "error_by_local_steps.png"}

    # One seed more costs that seed alone; what was recorded stays as it was.
    workplace.write("theory.yaml", SMALL | {"two_layer": {**SMALL["two_layer"], "seeds": [0, 1, 2]}})
    workplace.run("fedfisher", "run", "theory.yaml")
    after = workplace.artifacts("two_layer")
    assert len(after) == 3
    assert {key: after[key] for key in artifacts} == artifacts
    again = runs(folder, "theory")
    assert len(again) == 9
    assert {name: again[name].info.run_id for name in recorded} == {
        name: run.info.run_id for name, run in recorded.items()
    }
    assert [row for row in read_rows(folder / "results/theory/results.json", TwoLayerRow) if row.seed < 2] == rows
    assert len(runs(folder, "theory-summary")) == 3

    # New errors of the same run, as a new version would measure them, take the place of the old ones.
    settings = settings_in(folder)
    changed = [
        dataclasses.replace(row, training_error=3.0) if row.method == "fedfisher" else row
        for row in read_rows(folder / "results/theory/results.json", TwoLayerRow)
    ]

    def record_anew() -> int:
        return record.fn(
            settings.tracking, "theory", partial(make_runs, make_plan(settings), Outcome({}, {}), changed), {}
        )

    assert record_anew() == 3 + 3
    renewed = runs(folder, "theory")
    assert set(renewed) == set(again)
    points = series(folder, renewed["fedfisher s=0"], "training_error_by_width")
    assert points == [(4, 3.0), (16, 3.0), (64, 3.0)]
    assert renewed["fedavg s=0"].info.run_id == again["fedavg s=0"].info.run_id
    assert record_anew() == 0


def settings_in(folder: Path) -> TwoLayerSettings:
    """The settings of the file, with places that don't depend on the working directory."""
    tracking = {"mlflow": f"sqlite:///{folder}/mlflow.db", "mlflow_artifacts": str(folder / "mlartifacts")}
    return validate(TwoLayerSettings, SMALL | {"tracking": tracking})
