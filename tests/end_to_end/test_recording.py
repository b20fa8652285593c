"""MLflow's database under several writers and after a kill, with the real MLflow."""

import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from mlflow import MlflowClient

from fedfisher_core.settings import TrackingSettings
from tasks.tracking import prepare_tracking

pytestmark = pytest.mark.end_to_end

EXPERIMENTS = ("in a fresh database", "in a ready one")
# All writers are forks of one process, which imports MLflow once for them.
WRITERS = """
import os, sys
import mlflow
from fedfisher_core.reporting.runs import Record, Runs
from fedfisher_core.settings import TrackingSettings
from tasks.recording import record

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


def test_writers_at_once_write_every_run_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITERS, *EXPERIMENTS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert Counter(done.stdout.splitlines()) == Counter(
        {f"{experiment} {count}": times for experiment in EXPERIMENTS for count, times in ((0, 3), (5, 1))}
    )
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        recorded = database.execute(
            "SELECT experiments.name, runs.name FROM runs JOIN experiments USING (experiment_id)"
        )
        runs = Counter(recorded)
    single = [(experiment, f"run {i}") for experiment in EXPERIMENTS for i in range(4)]
    assert runs == Counter([*single, *((f"{experiment}-summary", "all") for experiment in EXPERIMENTS)])


def test_a_database_that_was_left_half_made_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(path)) as database:
        # What a kill between two of MLflow's migrations was seen to leave; MLflow itself fails on it for ever.
        database.executescript("""
            CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY);
            INSERT INTO alembic_version VALUES ('90e64c465722');
            CREATE TABLE experiments (experiment_id INTEGER PRIMARY KEY, name VARCHAR(256));
            INSERT INTO experiments VALUES (0, 'Default');
            CREATE TABLE _alembic_tmp_metrics ("key" VARCHAR(250));
        """)
    settings = TrackingSettings(mlflow=f"sqlite:///{path}")
    prepare_tracking(settings)
    made = path.read_bytes()
    client = MlflowClient(tracking_uri=settings.mlflow)
    assert [one.name for one in client.search_experiments()] == ["Default"]
    prepare_tracking(settings)
    assert len(made) == path.stat().st_size


def test_a_layout_that_is_killed_leaves_nothing_for_long(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    code = (
        "from fedfisher_core.settings import TrackingSettings as T; import tasks.tracking as t; t.prepare_tracking(T())"
    )
    command = [sys.executable, "-c", code]
    children = []
    with subprocess.Popen(command, cwd=tmp_path, env=environment) as process:
        while not children:
            assert process.poll() is None
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        time.sleep(0.5)
        process.kill()
    deadline = time.monotonic() + 3
    while is_alive(children[0]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(children[0])
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    assert list((tmp_path / "temporary").iterdir()) == []


def is_alive(process: str) -> bool:
    try:
        return bool(Path(f"/proc/{process}/cmdline").read_bytes())
    except FileNotFoundError:
        return False
