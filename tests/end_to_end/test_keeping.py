"""Commands that keep the tensors of the last round only."""

import re
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName
from prefect.settings import PREFECT_API_URL, temporary_settings

from tests.end_to_end.conftest import SMALL, Workplace

pytestmark = [pytest.mark.end_to_end, pytest.mark.long]

PRUNED = re.compile(r"^small: pruned the tensors of (\d+) artifacts of rounds (\d) to (\d), [\d,]+ bytes", re.MULTILINE)
METHODS = {"fedavg": {}, "fedfisher_diag": {}}


def large(folder: Path) -> int:
    return len([path for path in folder.glob("artifacts/[!a]*/*/*") if path.suffix in (".safetensors", ".bin")])


def tasks_of(name: str, prefect_api: str) -> int:
    with temporary_settings({PREFECT_API_URL: prefect_api}), get_client(sync_client=True) as client:
        return len(client.read_task_runs(flow_run_filter=FlowRunFilter(name=FlowRunFilterName(any_=[name])), limit=200))


def test_a_run_says_what_it_pruned_and_a_rerun_does_nothing(workplace: Workplace, prefect_api: str) -> None:
    run = {"runner": "processes", "workers": 2}
    settings = {**SMALL, "methods": METHODS, "train": {"epochs": 1}, "run": run}
    plain = {"name": "plain", "rounds": {"count": 3}, "run": {**run, "store": "plain"}}
    workplace.write("plain.yaml", {**settings, **plain})
    assert "pruned" not in workplace.run("fedfisher", "run", "plain.yaml").stderr
    jobs = len(list(workplace.folder.glob("plain/*/*/manifest.json")))
    # In processes too a task goes on with what is ready.
    assert 0 < tasks_of("plain", prefect_api) < jobs / 2
    workplace.write("params.yaml", {**settings, "rounds": {"count": 3, "keep": 1}})
    done = workplace.run("fedfisher", "run")
    # Of each client in round 1 a training, a Fisher and two payloads; in round 2 a training and a payload for each
    # method, and a Fisher.
    assert [found.groups() for found in PRUNED.finditer(done.stderr)] == [("27", "1", "2")]
    assert workplace.rows("small") == [{**row, "benchmark": "small"} for row in workplace.rows("plain")]
    left = large(workplace.folder)
    again = workplace.run("fedfisher", "run")
    assert again.stderr == ""
    assert again.stdout == done.stdout
    assert large(workplace.folder) == left


def test_two_commands_at_once_leave_each_others_results(workplace: Workplace) -> None:
    settings = {**SMALL, "methods": METHODS, "train": {"epochs": 1}, "rounds": {"count": 3, "keep": 1}}
    workplace.write("params.yaml", settings)
    started = [
        workplace.start("fedfisher", "run", *more)
        for more in ([], ["--set", "name=other", "--set", "methods=[fedavg, fisher_merge]"])
    ]
    for process in started:
        _, err = process.communicate(timeout=280)
        assert process.returncode == 0, err
        assert "Traceback" not in err
        # One waits while the other lays the database out; nothing is found harmed.
        assert [line for line in err.splitlines() if "WARNING" in line and "is locked" not in line] == []
    accuracies = {name: {row["method"]: row["accuracy"] for row in workplace.rows(name)} for name in ("small", "other")}
    assert accuracies["small"]["fedavg"] == accuracies["other"]["fedavg"]
    # Whoever is asked next prunes what was left.
    workplace.run("fedfisher", "run")
    workplace.run("fedfisher", "run", "--set", "name=other", "--set", "methods=[fedavg, fisher_merge]")
    left = large(workplace.folder)
    assert workplace.run("fedfisher", "run").stderr == ""
    assert large(workplace.folder) == left
