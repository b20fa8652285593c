"""One method that fails: the rest is done, reported and recorded, and what failed is tried again."""

import json
import re
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from mlflow import MlflowClient

from tests.end_to_end.conftest import SMALL, Workplace
from tests.plugins.installed import HERE, environment, install

pytestmark = [pytest.mark.end_to_end, pytest.mark.long]

PROGRESS = re.compile(r"small: \d+ of \d+ jobs, \d+ min(, about \d+ min left)?")
REASON = "PaperError: out of paper"
SETTINGS = SMALL | {
    "partition": {"alpha": [0.5, 5.0], "clients": [2]},
    "train": {"epochs": 1, "batch_size": 16},
    "methods": {"fedavg": {}, "broken": {}, "ensemble": {}},
}


@pytest.fixture
def place(workplace: Workplace, tmp_path: Path) -> Workplace:
    """A workplace where a package with a broken method is installed."""
    site = install(
        tmp_path / "site",
        package="broken-method",
        version="1.0",
        entry_points={"fedfisher.methods": "broken = broken_method"},
        sources=HERE / "broken",
    )
    return Workplace(workplace.folder, environment(site, workplace.environment))


def runs(place: Workplace) -> set[tuple[str, str]]:
    client = MlflowClient(tracking_uri=f"sqlite:///{place.folder}/mlflow.db")
    found = client.get_experiment_by_name("small")
    assert found is not None
    return {(run.data.params["method"], run.data.params["alpha"]) for run in client.search_runs([found.experiment_id])}


def run(place: Workplace, runner: str, *options: str, **changes: Any) -> CompletedProcess[str]:
    """Run what is broken: a line on standard error for each failure, and one for the run."""
    place.write("params.yaml", {**SETTINGS, "run": {"runner": runner, "workers": 2, "retries": 0}, **changes})
    failed = place.run("fedfisher", "run", *options, code=1)
    cell = "mnist5k lenet dirichlet_client alpha={} clients=2 seed=0"
    assert sorted(line for line in failed.stderr.splitlines() if not PROGRESS.fullmatch(line)) == [
        *(f"ERROR: aggregate broken of {cell.format(alpha)}: {REASON}" for alpha in ("0.5", "5")),
        "fedfisher: small: 2 jobs failed and 2 that need them were left out; tracebacks: results/small/failed.log",
    ]
    return failed


def test_one_broken_method_costs_its_own_cells_only(place: Workplace) -> None:
    failed = run(place, "threads")
    assert failed.stdout.count(REASON) == 2
    cells = [(method, alpha) for alpha in (0.5, 5.0) for method in ("fedavg", "ensemble")]
    rows = place.rows("small")
    assert [(row["method"], row["alpha"]) for row in rows] == cells
    assert runs(place) == {(method, f"{alpha:g}") for method, alpha in cells}
    folder = place.folder / "results/small"
    assert [one["reason"] for one in json.loads((folder / "failed.json").read_text())] == [REASON] * 2
    assert (folder / "failed.log").read_text().count("Traceback (most recent call last)") == 1
    assert "in broken" in (folder / "failed.log").read_text()
    assert f"broken failed in α = 0.5: {REASON}" in (folder / "index.html").read_text()
    assert place.run("fedfisher", "report", "small").stdout.count(REASON) == 2

    # What failed is tried again, and nothing else.
    before = place.artifacts("aggregates")
    said = json.loads(run(place, "threads", "--json").stdout)
    assert place.artifacts("aggregates") == before
    (report,) = said["reports"]
    assert (said["exit"], report["folder"], report["rows"]) == (1, "results/small", 4)
    assert report["failures"] == json.loads((folder / "failed.json").read_text())
    (place.folder / "mended").touch()
    done = place.run("fedfisher", "run")
    assert REASON not in done.stderr
    assert REASON not in done.stdout
    assert len(place.rows("small")) == 6
    assert before.items() < place.artifacts("aggregates").items()
    assert not {"failed.json", "failed.log"} & {path.name for path in folder.iterdir()}
    assert REASON not in (folder / "index.html").read_text()


@pytest.mark.drawn(0)
def test_a_run_that_fails_everywhere_has_no_report_and_a_stage_fails(place: Workplace) -> None:
    said = json.loads(run(place, "processes", "--json", methods={"broken": {}}).stdout)
    (report,) = said["reports"]
    assert (said["exit"], report["folder"], report["rows"]) == (1, None, 0)
    assert [one["reason"] for one in report["failures"]] == [REASON] * 2
    folder = place.folder / "results/small"
    assert [path.name for path in folder.iterdir()] == ["failed.log"]
    assert "in broken" in (folder / "failed.log").read_text()

    # Next to the report of an earlier run, it is said that this one found nothing.
    place.write("params.yaml", {**SETTINGS, "methods": {"fedavg": {}}})
    assert REASON not in place.run("fedfisher", "run").stdout
    run(place, "threads", methods={"broken": {}})
    assert place.run("fedfisher", "report", "small").stdout.count(REASON) == 2
    place.write("params.yaml", {**SETTINGS, "run": {"retries": 0}, "methods": {"broken": {}}})
    staged = place.run("fedfisher", "stage", code=1)
    assert staged.stdout == ""
    assert staged.stderr.count(REASON) == 2
    assert "Traceback" not in staged.stderr
    assert not (place.folder / "stages").exists()
