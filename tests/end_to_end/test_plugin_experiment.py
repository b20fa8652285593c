"""An experiment of another package, from its settings to MLflow, without an edit of anything else."""

import json
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.end_to_end.conftest import Workplace
from tests.plugins.installed import HERE, environment, install

pytestmark = pytest.mark.end_to_end


@pytest.fixture
def place(workplace: Workplace, tmp_path: Path) -> Workplace:
    """A workplace where the package is installed."""
    site = install(
        tmp_path / "site",
        package="coin-experiment",
        version="1.2",
        entry_points={"fedfisher.experiments": "coin = coin_experiment"},
        sources=HERE / "coin",
    )
    workplace.write("coins.yaml", {"experiment": "coin", "name": "coins", "biases": [0.2, 0.7]})
    return Workplace(workplace.folder, environment(site, workplace.environment))


def test_it_runs_reports_records_and_is_pruned_as_the_project_s_own(place: Workplace) -> None:
    out = place.run("fedfisher", "run", "coins.yaml").stdout
    assert "coins" in out
    folder = place.folder / "results/coins"
    rows = json.loads((folder / "results.json").read_text())
    assert [row["bias"] for row in rows] == [0.2, 0.7]
    assert rows[0]["heads"] < rows[1]["heads"]
    assert (folder / "results.csv").read_text().startswith("benchmark,experiment,bias,heads,artifact")
    assert "coin-experiment 1.2" in (folder / "index.html").read_text()

    client = MlflowClient(tracking_uri=f"sqlite:///{place.folder}/mlflow.db")
    runs = {}
    for name in ("coins", "coins-summary"):
        found = client.get_experiment_by_name(name)
        assert found is not None
        runs[name] = {run.info.run_name: run.data.metrics["heads"] for run in client.search_runs([found.experiment_id])}
    assert runs["coins"] == {f"coin {row['bias']:g}": row["heads"] for row in rows}
    assert runs["coins-summary"] == {"all": sum(row["heads"] for row in rows)}

    assert "bias" in place.run("fedfisher", "report", "coins").stdout
    assert "2 jobs, 2 of them done" in place.run("fedfisher", "doctor", "coins.yaml").stdout
    place.run("fedfisher", "run", "coins.yaml", "--set", "biases=[0.9]", "--set", "name=other")
    (place.folder / "results/other/results.json").unlink()
    assert "deleted 1 artifacts" in place.run("fedfisher", "store", "prune", "coins.yaml").stdout
    assert len(place.artifacts("coins")) == 2

    place.run("fedfisher", "stage", "coins.yaml")
    assert len(list((place.folder / "stages/coins/coins").iterdir())) == 2


@pytest.mark.drawn(0)
def test_its_settings_are_refused_by_name_and_without_the_package_so_is_it(
    place: Workplace, workplace: Workplace
) -> None:
    refused = place.run("fedfisher", "run", "coins.yaml", "--set", "biases=[2]", code=2).stderr
    assert "biases=[2.0]; allowed: from 0 to 1" in refused
    assert not (place.folder / "artifacts").exists()
    err = workplace.run("fedfisher", "run", "coins.yaml", code=2).stderr
    assert "unknown experiment 'coin'" in err
    assert "allowed: benchmark, fedfish_toy, privacy_attack, two_layer" in err
