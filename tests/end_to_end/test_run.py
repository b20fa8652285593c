"""`fedfisher run` as a user runs it: results, resume and recovery."""

import json
import os
import shutil
import signal
import urllib.request

import pytest
from mlflow import MlflowClient

from tests.end_to_end.conftest import SAID, SMALL, Workplace
from tests.waiting import wait_until

pytestmark = pytest.mark.end_to_end


def runs(workplace: Workplace, experiment: str) -> list:
    client = MlflowClient(tracking_uri=f"sqlite:///{workplace.folder}/mlflow.db")
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return list(client.search_runs([found.experiment_id]))


def flow_runs(workplace: Workplace, name: str) -> set[str]:
    """The runs of a benchmark that the server knows of, since this workplace was made."""
    request = urllib.request.Request(
        f"{workplace.environment['PREFECT_API_URL']}/flow_runs/filter",
        data=json.dumps({"flow_runs": {"name": {"any_": [name]}, "start_time": {"after_": workplace.made}}}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:
        return {run["id"] for run in json.load(response)}


def test_a_run_leaves_results_a_report_and_flat_mlflow_runs_and_a_rerun_adds_nothing(
    finished: Workplace, workplace: Workplace
) -> None:
    shutil.copytree(finished.folder, workplace.folder, dirs_exist_ok=True)
    out = (workplace.folder / SAID).read_text()
    assert "fedfisher_diag" in out
    assert "results/finished/index.html" in out

    rows = workplace.rows("finished")
    assert [row["method"] for row in rows] == ["fedavg", "fedfisher_diag", "ensemble"]
    assert all(row["accuracy"] > 0.1 for row in rows)
    assert "<table" in (workplace.folder / "results/finished/index.html").read_text()

    recorded = runs(workplace, "finished")
    assert {run.data.params["method"] for run in recorded} == {"fedavg", "fedfisher_diag", "ensemble"}
    by_method = {run.data.params["method"]: run for run in recorded}
    for row in rows:
        run = by_method[row["method"]]
        assert run.data.metrics["accuracy"] == row["accuracy"]
        assert run.data.metrics["upload_bits"] == row["upload_bits"]
        assert run.info.status == "FINISHED"
        figures = workplace.folder / "mlartifacts" / "finished" / run.info.run_id / "artifacts" / "figures"
        assert {path.name for path in figures.iterdir()} == {"partition.png", "confusion.png"}
    assert len(runs(workplace, "finished-summary")) == 3

    before = {kind: workplace.artifacts(kind) for kind in ("clients", "statistics", "payloads", "aggregates")}
    assert workplace.run("fedfisher", "run").stdout == out
    assert flow_runs(workplace, "finished") == set()
    assert {kind: workplace.artifacts(kind) for kind in before} == before
    assert workplace.rows("finished") == rows
    assert {run.info.run_id for run in runs(workplace, "finished")} == {run.info.run_id for run in recorded}

    # Another method costs its own aggregation only, and overridden settings leave the file's results alone.
    workplace.run("fedfisher", "run", "--set", "methods=[fedavg, fisher_merge]", "--set", "name=merged")
    assert len(flow_runs(workplace, "merged")) == 1
    assert workplace.artifacts("clients") == before["clients"]
    assert workplace.artifacts("statistics") == before["statistics"]
    assert len(workplace.artifacts("aggregates")) == len(before["aggregates"]) + 1
    assert workplace.rows("finished") == rows

    # What a user damages is noticed, computed again, and comes out the same.
    folders = [workplace.folder / "artifacts/aggregates" / key for key in sorted(before["aggregates"])]
    damaged = next(file for folder in folders for file in folder.glob("*.safetensors"))
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    err = workplace.run("fedfisher", "run").stderr
    assert damaged.parent.name in err
    assert "computed again" in err
    assert workplace.rows("finished") == rows


@pytest.mark.drawn(0)
def test_a_killed_run_goes_on_where_it_was(workplace: Workplace) -> None:
    # A client takes a second or more, so that the kill comes amid the next one.
    settings = SMALL | {
        "name": "killed",
        "data": {"dataset": "mnist5k"},
        "train": {"epochs": 12},
        "run": {"workers": 1},
    }
    workplace.write("params.yaml", settings)
    process = workplace.start("fedfisher", "run")

    def has_trained() -> bool:
        assert process.poll() is None, process.communicate()
        return bool(workplace.artifacts("clients"))

    wait_until(has_trained, "a client is trained")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    finished = workplace.artifacts("clients")
    assert 1 <= len(finished) < 3

    workplace.run("fedfisher", "run")
    after = workplace.artifacts("clients")
    assert len(after) == 3
    assert {key: after[key] for key in finished} == finished
    assert not list((workplace.folder / "artifacts/.writing").iterdir())

    workplace.run("fedfisher", "run", "--set", "run.store=undisturbed", "--set", "run.workers=2", "--set", "name=calm")
    calm = [{**row, "benchmark": "killed"} for row in workplace.rows("calm")]
    assert calm == workplace.rows("killed")
