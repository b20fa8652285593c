"""The privacy attack as a user runs it, with and without differential privacy, and its runs in MLflow."""

import shutil
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from fedfisher_core.experiments.privacy_attack.rows import AttackRow
from fedfisher_core.reporting.rows import read_rows
from tests.end_to_end.conftest import TINY_ATTACK, Workplace

pytestmark = [pytest.mark.end_to_end, pytest.mark.long]

KINDS = ("clients", "aggregates", "evaluators", "priors", "attacks")


def recorded(folder: Path, experiment: str) -> dict[str, Run]:
    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    runs = client.search_runs([found.experiment_id])
    assert len({run.info.run_name for run in runs}) == len(runs)
    return {run.data.tags["artifact"]: run for run in runs if "artifact" in run.data.tags}


def attacked(folder: Path, name: str = "attack") -> list[AttackRow]:
    return [row for row in read_rows(folder / "results" / name / "results.json", AttackRow) if not row.reference]


def test_a_run_attacks_reports_and_records(workplace: Workplace) -> None:
    workplace.write("attack.yaml", TINY_ATTACK)
    # A run makes the script of its charts.
    shutil.rmtree(workplace.folder / "results/assets")
    out = workplace.run("fedfisher", "run", "attack.yaml").stdout
    assert "fedfisher_kfac" in out
    assert "results/attack/index.html" in out

    folder = workplace.folder
    rows = read_rows(folder / "results/attack/results.json", AttackRow)
    assert [row.method for row in attacked(folder)] == ["ensemble", "fedavg", "fedfisher_kfac"]
    assert [row.method for row in rows if row.reference] == ["noise", "GAN without inversion", "real test images"]
    assert {row.artifact for row in attacked(folder)} == set(workplace.artifacts("attacks"))
    assert len(workplace.artifacts("priors")) == len(workplace.artifacts("evaluators")) == 1
    assert "fedfisher run attack.yaml" in (folder / "results/attack/index.html").read_text()
    assert "data:image/png;base64" in (folder / "results/attack/index.html").read_text()
    assert (folder / "results/assets/vega.js").is_file()

    runs = recorded(folder, "attack")
    for row in attacked(folder):
        run = runs[row.artifact]
        assert run.data.params["method"] == row.method
        assert run.data.metrics["attack_accuracy"] == row.attack_accuracy
        assert run.info.status == "FINISHED"
        pictures = folder / "mlartifacts/attack" / run.info.run_id / "artifacts"
        assert list(pictures.rglob("*.png"))

    # All that the report was made from stays, what its rows don't name by a key as well.
    assert "would delete 0 artifacts" in workplace.run("fedfisher", "store", "prune", "attack.yaml", "--dry-run").stdout


@pytest.mark.drawn(0)
def test_what_is_there_is_used_again_by_a_method_and_a_budget_more(workplace: Workplace) -> None:
    workplace.write("attack.yaml", TINY_ATTACK)
    workplace.run("fedfisher", "run", "attack.yaml")
    folder = workplace.folder
    rows, runs = read_rows(folder / "results/attack/results.json", AttackRow), recorded(folder, "attack")
    before = {kind: workplace.artifacts(kind) for kind in KINDS}
    methods = TINY_ATTACK["methods"] | {"fedfisher_diag": {}}
    workplace.write("attack.yaml", TINY_ATTACK | {"methods": methods, "privacy": {"epsilon": ["none", 8]}})
    workplace.run("fedfisher", "run", "attack.yaml")
    after = {kind: workplace.artifacts(kind) for kind in KINDS}
    for kind in KINDS:
        assert {key: after[kind][key] for key in before[kind]} == before[kind]
    assert len(after["priors"]) == len(after["evaluators"]) == 1
    # What is released shares the budget: private clients serve the methods that ask for the same, as the first two do.
    assert len(after["clients"]) == len(before["clients"]) + 3 * 3
    found = {(row.method, row.epsilon): row for row in attacked(folder)}
    assert set(found) == {(method, epsilon) for method in methods for epsilon in (None, 8.0)}
    assert found["fedfisher_diag", None].case.startswith("(iv)")
    assert all(found[row.method, None] == row for row in rows if not row.reference)
    again = recorded(folder, "attack")
    assert {key: again[key].info.run_id for key in runs} == {key: run.info.run_id for key, run in runs.items()}
