"""The toy regression as a user runs it, and its runs in MLflow."""

from typing import Any

import pytest
from mlflow import MlflowClient

from fedfisher_core.experiments.fedfish_toy.rows import FedFishToyRow
from fedfisher_core.reporting.rows import read_rows
from tests.end_to_end.conftest import Workplace

pytestmark = pytest.mark.end_to_end

SMALL: dict[str, Any] = {
    "experiment": "fedfish_toy",
    "name": "toy",
    "toy": {"overlaps": [1.0, 0.0], "epochs": [1, 3], "samples": 8, "widths": [4, 4, 4], "seeds": [0, 1]},
    "run": {"workers": 2, "retries": 0},
}


def test_a_run_measures_reports_and_records(workplace: Workplace) -> None:
    workplace.write("toy.yaml", SMALL)
    out = workplace.run("fedfisher", "run", "toy.yaml").stdout
    assert "full overlap (2 seeds)" in out
    folder = workplace.folder
    rows = read_rows(folder / "results/toy/results.json", FedFishToyRow)
    assert len(rows) == 2 * 2 * 2 * 2
    assert {row.artifact for row in rows} == set(workplace.artifacts("fedfish_toy"))
    report = {path.name for path in (folder / "results/toy").iterdir()}
    assert {"index.html", "results.csv", "page.json"} <= report

    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    found = client.get_experiment_by_name("toy")
    assert found is not None
    recorded = {str(run.info.run_name): run for run in client.search_runs([found.experiment_id])}
    assert len(recorded) == 2 * 2 * 2
    for name, run in recorded.items():
        own = [row for row in rows if f"{row.method} overlap={row.overlap:g} s={row.seed}" == name]
        history = client.get_metric_history(run.info.run_id, "barrier")
        assert {point.step: point.value for point in history} == {row.local_epochs: row.barrier for row in own}
