"""The leaderboard as a user makes it, of the reports that this repository publishes."""

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient

from fedfisher_core.experiments.leaderboard.entries import make_entries, read_reports
from fedfisher_core.reporting.rows import as_csv
from flows import cli
from flows.cli import main
from tests.experiments.leaderboard.boards import scored, write_report

ROOT = Path(__file__).parents[2]
PUBLISHED = ("mnist_methods", "ma_echo_table1", "compression", "privacy_attack", "theory_two_layer")


@pytest.fixture
def project(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory whose MLflow has an address of its own."""
    # The command sets these for its own process, which here is that of all tests.
    monkeypatch.setattr(cli, "_ENVIRONMENT", {})
    tracking = {"mlflow": f"sqlite:///{workplace}/mlflow.db", "mlflow_artifacts": f"{workplace}/mlartifacts"}
    (workplace / "params.yaml").write_text(yaml.safe_dump({"name": "demo", "tracking": tracking}))
    return workplace


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main(["leaderboard", *arguments])
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_published_reports_make_a_page_a_table_and_one_run(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in PUBLISHED:
        (project / "reports" / name).mkdir(parents=True)
        shutil.copy(ROOT / "reports" / name / "results.json", project / "reports" / name)
    main(["leaderboard"])
    out = capsys.readouterr().out
    assert "fedavg" in out
    assert "leaderboard: results/leaderboard/index.html" in out

    table = (project / "results/leaderboard/results.csv").read_bytes()
    records = list(csv.DictReader(io.StringIO(table.decode())))
    assert {one["report"] for one in records} == {"mnist_methods", "ma_echo_table1", "compression"}
    page = (project / "results/leaderboard/index.html").read_text()
    assert "privacy attack" in page
    assert "two layer" in page

    client = MlflowClient(tracking_uri=f"sqlite:///{project}/mlflow.db")
    assert client.get_experiment_by_name("leaderboard-summary") is None
    experiment = client.get_experiment_by_name("leaderboard")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.metrics["num_entries"] == len(records)
    printed = dict(line.split() for line in out.splitlines() if line.startswith(("fed", "ma_")))
    ranks = {name: run.data.metrics[f"mean_rank_{name}"] for name in printed}
    assert {name: f"{rank:.2f}" for name, rank in ranks.items()} == printed
    kept = project / "mlartifacts/leaderboard" / run.info.run_id / "artifacts/tables/results.csv"
    assert kept.read_bytes() == table

    # The same again changes nothing; other reports replace the run, with all of its metrics.
    main(["leaderboard"])
    assert (project / "results/leaderboard/results.csv").read_bytes() == table
    (same,) = client.search_runs([experiment.experiment_id])
    assert same.info.run_id == run.info.run_id
    write_report(project / "other", "one", scored("fedavg", 0.5), scored("new", 0.6))
    main(["leaderboard", "--reports", "other"])
    (other,) = client.search_runs([experiment.experiment_id])
    assert {name: value for name, value in other.data.metrics.items() if name.startswith("mean_rank_")} == {
        "mean_rank_new": 1.0,
        "mean_rank_fedavg": 2.0,
    }


def test_own_results_come_first_and_either_folder_may_be_missing(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.leaderboard.is_recorded", lambda *given: True)
    assert "no results of a benchmark in no folder" in refused(capsys)
    write_report(project / "reports", "one", scored("fedavg", 0.5))
    main(["leaderboard", "--out", "reports/leaderboard"])
    write_report(project / "results", "one", scored("fedavg", 0.75))
    main(["leaderboard"])
    assert ",0.5," in (project / "reports/leaderboard/results.csv").read_text()
    assert ",0.75," in (project / "results/leaderboard/results.csv").read_text()


def test_what_can_not_be_read_or_would_be_lost_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_report(project / "results", "one", scored("fedavg", 0.5))
    assert "tracking.mlflow='http://127.0.0.1:9' can't be" in refused(
        capsys, "--set", "tracking.mlflow=http://127.0.0.1:9"
    )
    line = refused(capsys, "--out", "results/one")
    assert line == "fedfisher: out='results/one' holds the report of an experiment; allowed: another folder"
    records = json.loads(path.read_text())
    del records[0]["accuracy"]
    path.write_text(json.dumps(records))
    line = refused(capsys)
    assert line.startswith("fedfisher: results/one/results.json is no list of result rows: row 1 lacks the field 'acc")
    assert "reports='absent' is no folder" in refused(capsys, "--reports", "absent")
    assert not (project / "results/leaderboard").exists()
    assert not (project / "mlflow.db").exists()


def test_a_leaderboard_that_has_not_changed_starts_neither_prefect_nor_mlflow(project: Path) -> None:
    write_report(project / "results", "one", scored("fedavg", 0.5))
    code = """
import sys
import flows.leaderboard
from flows.cli import main
flows.leaderboard.is_recorded = lambda *given: True
main(["leaderboard"])
print([name for name in ("prefect", "mlflow", "torch") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_committed_leaderboard_is_that_of_the_committed_reports() -> None:
    again = "fedfisher leaderboard --reports reports --out reports/leaderboard"
    entries = make_entries(read_reports([ROOT / "reports"]).benchmarks)
    assert (ROOT / "reports/leaderboard/results.csv").read_bytes() == as_csv(entries), f"make it again: {again}"
    page = (ROOT / "reports/leaderboard/index.html").read_text()
    assert again in page
    assert len(page) < 2**20
