"""A command that is killed or ended alone takes everything with it, and the next run goes on."""

import os
import random
import re
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.chaos.driver import MARK, alive
from tests.end_to_end.conftest import SMALL, Workplace
from tests.waiting import HANG_SECONDS, wait_until

pytestmark = [pytest.mark.end_to_end, pytest.mark.long]

SEED = 14
# Of seconds, which a signal is to come amid.
SETTINGS = SMALL | {
    "data": {"dataset": "mnist5k"},
    "train": {"epochs": 6},
    "methods": {"fedavg": {}, "fedfisher_diag": {}},
}


@pytest.fixture
def place(workplace: Workplace, tmp_path: Path) -> Workplace:
    """A workplace without a Prefect server, whose commands can be told from all others by a variable."""
    (tmp_path / "temporary").mkdir()
    environment = {key: value for key, value in workplace.environment.items() if key != "PREFECT_API_URL"}
    return Workplace(workplace.folder, environment | {"TMPDIR": str(tmp_path / "temporary"), MARK: str(tmp_path)})


def begun(place: Workplace) -> "subprocess.Popen[str]":
    """A run that has split the data."""
    process = place.start("fedfisher", "run")

    def has_split() -> bool:
        assert process.poll() is None, process.communicate()
        return bool(list((place.folder / "artifacts/partitions").glob("*/manifest.json")))

    wait_until(has_split, "the data is split")
    return process


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("runner", "sent", "code"),
    [
        ("threads", signal.SIGKILL, -9),
        ("processes", signal.SIGKILL, -9),
        ("processes", signal.SIGTERM, 143),
        ("threads", signal.SIGINT, 130),
    ],
)
def test_nothing_outlives_the_command(place: Workplace, runner: str, sent: signal.Signals, code: int) -> None:
    place.write("params.yaml", SETTINGS | {"run": {"runner": runner, "workers": 2}})
    process = begun(place)
    wait = random.Random(f"{SEED} {runner} {sent.name}").uniform(0, 2)
    time.sleep(wait)
    assert len(alive(place)) > 1
    os.kill(process.pid, sent)
    wait_until(lambda: not alive(place), f"nothing is left: seed {SEED}, {sent.name} after {wait:.2f} s")
    _, err = process.communicate()
    assert process.returncode == code, err
    assert "Traceback" not in err
    if sent is not signal.SIGKILL:
        assert re.fullmatch(r"fedfisher: stopped; .*\n", err), err
    place.run("fedfisher", "run")
    assert len(place.rows("small")) == 2
    assert list(Path(place.environment["TMPDIR"]).glob("fedfisher-*")) == []
    with closing(sqlite3.connect(Path(place.environment["PREFECT_HOME"], "prefect.db"))) as database:
        states = database.execute("SELECT state_type FROM flow_run ORDER BY created").fetchall()
    assert states == [("CRASHED",), ("COMPLETED",)]


@pytest.mark.drawn(0)
def test_a_run_whose_server_is_gone_says_so_and_the_next_goes_on(place: Workplace) -> None:
    place.write("params.yaml", SETTINGS | {"run": {"runner": "threads", "workers": 2}})
    # Prefect tries again for minutes; without any retry, a server that is busy for a moment ends the run as well.
    impatient = Workplace(place.folder, place.environment | {"PREFECT_CLIENT_MAX_RETRIES": "2"})
    process = begun(impatient)
    (server,) = (number for number, command in alive(place).items() if "flows.server" in command)
    os.kill(server, signal.SIGKILL)
    _, err = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 1, err
    # Prefect's own threads may say more after it.
    assert [
        line
        for line in err.splitlines()
        if line.startswith("fedfisher: Prefect's API no longer answers as it should (")
    ]
    before = place.artifacts("partitions")
    place.run("fedfisher", "run")
    assert place.artifacts("partitions") == before
    assert len(place.rows("small")) == 2
