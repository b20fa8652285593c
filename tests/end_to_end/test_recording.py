"""MLflow's database under several writers and after a kill, with the real MLflow."""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
import torch
from mlflow import MlflowClient, pyfunc
from mlflow.entities import ViewType

from tests.end_to_end.conftest import BIN, Workplace
from tests.servers import free_port, stopped_after, wait_for
from tests.waiting import HANG_SECONDS, wait_until

pytestmark = pytest.mark.end_to_end

EXPERIMENTS = ("in a fresh database", "in a ready one")
# All writers are forks of one process, which imports MLflow once for them.
WRITERS = """
import os, sys
import mlflow
from fedfisher_core.reporting.runs import Record, Runs
from fedfisher_core.settings import TrackingSettings
from tasks.record import record

def runs():
    single = [Record(f"run {i}", {"i": str(i)}, {"accuracy": i / 4}, {}) for i in range(4)]
    return Runs(single, [Record("all", {"i": "all"}, {}, {}, series={"loss": {1: 2.0, 2: 1.0}})])

writers = 4
for _ in range(writers):
    if os.fork() == 0:
        for experiment in sys.argv[1:]:
            print(experiment, record.fn(TrackingSettings(), experiment, runs, {}), flush=True)
        break
else:
    sys.exit(any(os.wait()[1] for _ in range(writers)))
"""


@pytest.mark.drawn(0)
def test_writers_at_once_write_every_run_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITERS, *EXPERIMENTS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert done.returncode == 0, done.stderr
    assert Counter(done.stdout.splitlines()) == Counter(
        {f"{experiment} {count}": times for experiment in EXPERIMENTS for count, times in ((0, 3), (5, 1))}
    )
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    found = {one.experiment_id: one.name for one in client.search_experiments()}
    recorded = client.search_runs(list(found), run_view_type=ViewType.ALL)
    runs = Counter((found[run.info.experiment_id], run.info.run_name) for run in recorded)
    single = [(experiment, f"run {i}") for experiment in EXPERIMENTS for i in range(4)]
    assert runs == Counter([*single, *((f"{experiment}-summary", "all") for experiment in EXPERIMENTS)])


@pytest.mark.drawn(0)
def test_a_killed_command_leaves_a_whole_database_or_none(tmp_path: Path) -> None:
    code = "from fedfisher_core.settings import TrackingSettings as T; import tasks.tracking as t; t.client_of(T())"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=tmp_path) as process:
        # The database in the making.
        wait_until(lambda: (tmp_path / "mlflow.db.new").exists(), "the database is begun")
        process.kill()
    assert not (tmp_path / "mlflow.db").exists()
    subprocess.run(command, cwd=tmp_path, check=True)
    assert not (tmp_path / "mlflow.db.new").exists()
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    assert [one.name for one in client.search_experiments()] == ["Default"]


@pytest.mark.drawn(0)
def test_the_ui_of_a_moved_project_shows_its_figures(tmp_path: Path) -> None:
    first, moved, port = tmp_path / "first", tmp_path / "moved", free_port()
    first.mkdir()
    code = """
from fedfisher_core.reporting.runs import Record, Runs
from fedfisher_core.settings import TrackingSettings
from tasks.record import record
one = Record("a", {}, {}, {}, draw=lambda: {"x.svg": b"<svg/>"})
record.fn(TrackingSettings(), "drawn", lambda: Runs([one], []), {})
"""
    subprocess.run([sys.executable, "-c", code], cwd=first, check=True)
    first.rename(moved)
    (moved / "params.yaml").write_text("name: any\n")
    environment = os.environ | {"MLFLOW_WORKERS": "1"}
    with stopped_after([sys.executable, "-m", "flows.cli", "ui", "--port", str(port)], environment, moved):
        wait_for(f"http://127.0.0.1:{port}/health")
        client = MlflowClient(f"http://127.0.0.1:{port}")
        experiment = client.get_experiment_by_name("drawn")
        assert experiment is not None
        (run,) = client.search_runs([experiment.experiment_id])
        asked = f"http://127.0.0.1:{port}/get-artifact?path=figures%2Fx.svg&run_uuid={run.info.run_id}"
        with urllib.request.urlopen(asked) as answer:
            assert answer.read() == b"<svg/>"
        listed = f"http://127.0.0.1:{port}/ajax-api/2.0/mlflow/artifacts/list?path=figures&run_id={run.info.run_id}"
        with urllib.request.urlopen(listed) as answer:
            assert [file["path"] for file in json.load(answer)["files"]] == ["figures/x.svg"]


def test_mlflow_serves_the_best_network_without_the_store(workplace: Workplace) -> None:
    workplace.change({"methods": {"fedavg": {}, "ensemble": {}}, "tracking": {"models": "best"}})
    workplace.run("fedfisher", "run")
    workplace.run("fedfisher", "export", "small", "--method", "fedavg", "-o", "network")
    shutil.rmtree(workplace.folder / "artifacts")
    about = json.loads((workplace.folder / "network/network.json").read_text())
    (mean,), (std,) = about["normalisation"]["mean"], about["normalisation"]["std"]
    pixels = torch.rand(3, 1, 28, 28)
    network = torch.export.load(workplace.folder / "network/network.pt2").module()
    expected = network((pixels - mean) / std)

    port = free_port()
    command = [str(BIN / "mlflow"), "models", "serve", "-m", "models:/fedfisher-small@best", "--env-manager", "local"]
    environment = {**workplace.environment, "MLFLOW_TRACKING_URI": "sqlite:///mlflow.db"}
    with stopped_after([*command, "--port", str(port)], environment, workplace.folder):
        wait_for(f"http://127.0.0.1:{port}/health")
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/invocations",
            data=json.dumps({"inputs": pixels.tolist()}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            predictions = torch.tensor(json.load(answer)["predictions"])
    torch.testing.assert_close(predictions, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.drawn(0)
def test_a_server_keeps_every_network_and_serves_the_best(
    workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Keeping all is the default.
    workplace.change({"tracking": {}})
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    places = ["--backend-store-uri", f"sqlite:///{tmp_path}/team.db", "--artifacts-destination", f"{tmp_path}/team"]
    command = [str(BIN / "mlflow"), "server", *places, "--port", str(port), "--workers", "1"]
    with stopped_after(command, workplace.environment):
        wait_for(f"{address}/health")
        on_server = ("--set", "name=team", "--set", f"tracking.mlflow={address}")
        workplace.run("fedfisher", "run", "params.yaml", *on_server)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        client = MlflowClient()
        experiment = client.get_experiment_by_name("team")
        assert experiment is not None
        runs = client.search_runs([experiment.experiment_id])
        kept = {run.data.params["method"]: run.outputs.model_outputs for run in runs if run.outputs}
        # An ensemble has several networks.
        assert {method: len(models) for method, models in kept.items() if models} == {"fedavg": 1, "fedfisher_diag": 1}
        accuracies = {str(row["method"]): row["accuracy"] for row in workplace.rows("team")}
        best = max(kept.keys() - {"ensemble"}, key=lambda method: accuracies[method])
        registered = client.get_model_version_by_alias("fedfisher-team", "best")
        assert registered.tags["method"] == best
        pixels = torch.rand(3, 1, 28, 28).numpy()
        expected = pyfunc.load_model(f"models:/{kept[best][0].model_id}").predict(pixels)
        served = pyfunc.load_model("models:/fedfisher-team@best")
        assert served.metadata.signature.inputs.inputs[0].shape == (-1, 1, 28, 28)
        assert served.predict(pixels).tolist() == expected.tolist()
        shown = workplace.run("fedfisher", "ui", "params.yaml", *on_server).stdout
        summary = client.get_experiment_by_name("team-summary")
        assert summary is not None
        assert shown.startswith(f"team: {address}/#/experiments/{summary.experiment_id}/runs?")
