"""Commands that keep the results of the last round only."""

import re
from pathlib import Path

import pytest

from tests.end_to_end.conftest import SMALL, Workplace
from tests.waiting import HANG_SECONDS

pytestmark = [pytest.mark.end_to_end, pytest.mark.long]

DELETED = re.compile(r"^small: deleted (\d+) results of rounds (\d) to (\d), [\d,]+ bytes", re.MULTILINE)
SETTINGS = {
    **SMALL,
    "partition": {"alpha": [0.5], "clients": [2]},
    "methods": {"fedavg": {}, "fedfisher_diag": {}},
    "train": {"epochs": 1},
}


def large(folder: Path) -> int:
    return len([path for path in folder.glob("artifacts/[!a]*/*/*") if path.suffix in (".safetensors", ".bin")])


@pytest.mark.drawn(0)
def test_a_run_says_what_it_deleted_and_a_rerun_does_nothing(workplace: Workplace) -> None:
    run = {"runner": "processes", "workers": 2}
    settings = {**SETTINGS, "run": run}
    # Processes come to the same as threads.
    plain = {"name": "plain", "rounds": {"count": 3}, "run": {"runner": "threads", "workers": 2, "store": "plain"}}
    workplace.write("plain.yaml", {**settings, **plain})
    assert "deleted" not in workplace.run("fedfisher", "run", "plain.yaml").stderr
    workplace.write("params.yaml", {**settings, "rounds": {"count": 3, "keep": 1}})
    done = workplace.run("fedfisher", "run")
    # Of each client in round 1 a training, a Fisher and two payloads; in round 2 a training and a payload for each
    # method, and a Fisher.
    assert [found.groups() for found in DELETED.finditer(done.stderr)] == [("18", "1", "2")]
    assert workplace.rows("small") == [{**row, "benchmark": "small"} for row in workplace.rows("plain")]
    left = large(workplace.folder)
    again = workplace.run("fedfisher", "run")
    assert again.stderr == ""
    assert again.stdout == done.stdout
    assert large(workplace.folder) == left


@pytest.mark.drawn(0)
def test_two_commands_at_once_leave_each_others_results(workplace: Workplace) -> None:
    settings = {**SETTINGS, "rounds": {"count": 3, "keep": 1}}
    workplace.write("params.yaml", settings)
    started = [
        workplace.start("fedfisher", "run", *more)
        for more in ([], ["--set", "name=other", "--set", "methods=[fedavg, fisher_merge]"])
    ]
    for process in started:
        _, err = process.communicate(timeout=HANG_SECONDS)
        assert process.returncode == 0, err
        assert "Traceback" not in err
        # One waits while the other lays the database out; nothing is found harmed.
        assert [line for line in err.splitlines() if "WARNING" in line and "is locked" not in line] == []
    accuracies = {name: {row["method"]: row["accuracy"] for row in workplace.rows(name)} for name in ("small", "other")}
    assert accuracies["small"]["fedavg"] == accuracies["other"]["fedavg"]
    # The next run deletes what was left.
    workplace.run("fedfisher", "run")
    workplace.run("fedfisher", "run", "--set", "name=other", "--set", "methods=[fedavg, fisher_merge]")
    left = large(workplace.folder)
    assert workplace.run("fedfisher", "run").stderr == ""
    assert large(workplace.folder) == left
