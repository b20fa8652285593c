"""What is known of MLflow's database without MLflow."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory

from fedfisher_core.errors import InputError
from fedfisher_core.locks import LockedError
from fedfisher_core.settings import TrackingSettings
from tasks import tracking
from tasks.tracking import prepare_tracking, recording, require_layout

RECORDER = """
import sys, time
from fedfisher_core.settings import TrackingSettings
from tasks.tracking import recording
with recording(TrackingSettings(mlflow=sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def settings(tmp_path: Path) -> TrackingSettings:
    return TrackingSettings(mlflow=f"sqlite:///{tmp_path}/mlflow.db")


def lay_out(settings: TrackingSettings, version: str, *statements: str) -> None:
    assert settings.database is not None
    with closing(sqlite3.connect(settings.database)) as database:
        database.execute("CREATE TABLE alembic_version (version_num TEXT)")
        database.execute("INSERT INTO alembic_version VALUES (?)", (version,))
        for statement in statements:
            database.execute(statement)
        database.commit()


def test_the_newest_layout_is_the_one_that_alembic_finds() -> None:
    folder = tracking.distribution("mlflow").locate_file("mlflow/store/db_migrations")
    assert ScriptDirectory(str(folder)).get_heads() == [tracking._newest_layout()]


def test_a_database_in_the_newest_layout_stays_as_it_is(settings: TrackingSettings) -> None:
    lay_out(settings, tracking._newest_layout(), "CREATE TABLE runs (name)", "INSERT INTO runs VALUES ('one')")
    assert settings.database is not None
    before = settings.database.read_bytes()
    require_layout(settings)
    prepare_tracking(settings)
    assert settings.database.read_bytes() == before


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE runs (name)", "INSERT INTO runs VALUES ('one')"],
        ["CREATE TABLE experiments (experiment_id)", "INSERT INTO experiments VALUES (0), (1)"],
    ],
)
def test_what_holds_something_in_another_layout_is_refused(settings: TrackingSettings, statements: list[str]) -> None:
    lay_out(settings, "90e64c465722", *statements)
    for check in (require_layout, prepare_tracking):
        with pytest.raises(
            InputError, match=r"tracking\.mlflow=.* another version of MLflow.*mlflow db upgrade sqlite"
        ):
            check(settings)


def test_what_holds_nothing_in_another_layout_may_be_made_anew(settings: TrackingSettings) -> None:
    require_layout(settings)
    lay_out(settings, "90e64c465722", "CREATE TABLE experiments (experiment_id)", "INSERT INTO experiments VALUES (0)")
    require_layout(settings)


def test_a_server_is_neither_laid_out_nor_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = TrackingSettings(mlflow="http://127.0.0.1:9")
    require_layout(settings)
    prepare_tracking(settings)
    with recording(settings):
        assert list(tmp_path.iterdir()) == []


def test_a_second_writer_waits_and_is_told_who_writes(
    settings: TrackingSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "_PATIENCE_SECONDS", 0.2)
    command = [sys.executable, "-c", RECORDER, settings.mlflow]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            told = rf"process {process.pid} on .* \(records runs in MLflow"
            with pytest.raises(LockedError, match=told), recording(settings):
                pass
        finally:
            process.kill()
    with recording(settings):
        pass
