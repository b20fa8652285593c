"""MLflow's database: how it is opened, and what is noted of it."""

import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from fedfisher_core.engine.errors import LockedError
from fedfisher_core.reporting.runs import SUMMARY, Record, Runs
from fedfisher_core.settings import TrackingSettings
from tasks import tracking
from tasks.tracking import (
    artifact_locations,
    client_of,
    comparison_page_of,
    is_recorded,
    note,
    noted,
    recording,
    require_usable,
)

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


@pytest.fixture
def made(settings: TrackingSettings, database: Path, tmp_path: Path) -> TrackingSettings:
    """Settings with a database that is there."""
    shutil.copy(database, tmp_path)
    return settings


def change(settings: TrackingSettings, statement: str) -> None:
    assert settings.database is not None
    with closing(sqlite3.connect(settings.database)) as database:
        database.execute(statement)
        database.commit()


def test_a_missing_or_empty_database_is_made(settings: TrackingSettings, tmp_path: Path) -> None:
    (tmp_path / "mlflow.db.new").write_text("what a command that was killed has left")
    (tmp_path / "mlflow.db").touch()
    require_usable(settings)
    assert (tmp_path / "mlflow.db").stat().st_size == 0
    assert [one.name for one in client_of(settings).search_experiments()] == ["Default"]
    assert not (tmp_path / "mlflow.db.new").exists()
    before = (tmp_path / "mlflow.db").read_bytes()
    require_usable(settings)
    client_of(settings)
    assert (tmp_path / "mlflow.db").read_bytes() == before


def test_what_another_version_laid_out_is_refused_in_one_line(made: TrackingSettings) -> None:
    # No other version is installed here; this is all that it would leave to tell it by.
    change(made, "UPDATE alembic_version SET version_num = 'ffffffffffff'")
    # In a process of its own: this one has opened it before.
    code = "import sys; from fedfisher_core.settings import TrackingSettings as T; import tasks.tracking as t; "
    code += "t.require_usable(T(mlflow=sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, made.mlflow], capture_output=True, text=True)
    *_, last = done.stderr.splitlines()
    assert re.search(
        r"InputError: tracking\.mlflow='sqlite:.* can't be used by MLflow: .*ffffffffffff.*; allowed: ", last
    )


def test_a_server_is_neither_opened_nor_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = TrackingSettings(mlflow="http://127.0.0.1:9")
    require_usable(settings)
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


def test_figures_beside_the_database_are_seen_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here, own = TrackingSettings(), (tmp_path / "mlartifacts/a b").as_uri()
    assert artifact_locations(here, "a b") == ("fedfisher:mlartifacts/a%20b", own)
    elsewhere = TrackingSettings(mlflow=f"sqlite:///{tmp_path}/runs/mlflow.db")
    assert artifact_locations(elsewhere, "a b") == (own,)


def test_what_is_not_installed_is_not_promised_to_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tracking, "entry_points", lambda **_: ())
    assert artifact_locations(TrackingSettings(), "a") == ((tmp_path / "mlartifacts/a").as_uri(),)


ONE, OTHER = (Runs([Record(name, {"i": name}, {}, {})], []) for name in ("one", "other"))


def test_what_was_noted_holds_until_the_database_is_written_to(made: TrackingSettings) -> None:
    assert not is_recorded(made, "a", ONE)
    client = client_of(made)
    note(made, noted(made), "a", ONE)
    note(made, noted(made), "b", OTHER)
    assert is_recorded(made, "a", ONE)
    assert is_recorded(made, "b", OTHER)
    assert not is_recorded(made, "a", OTHER)
    assert not is_recorded(made, "c", ONE)
    client.create_experiment("by hand")
    assert not is_recorded(made, "a", ONE)
    assert noted(made) == {}


@pytest.mark.parametrize("said", [b"", b"\xff", b"1 2\nno digest"])
def test_a_note_that_says_nothing_of_the_database_is_none(made: TrackingSettings, tmp_path: Path, said: bytes) -> None:
    note(made, {}, "a", ONE)
    assert is_recorded(made, "a", ONE)
    (tmp_path / "mlflow.db.recorded").write_bytes(said)
    assert not is_recorded(made, "a", ONE)


def test_a_database_that_is_gone_holds_nothing(made: TrackingSettings, tmp_path: Path) -> None:
    note(made, {}, "a", ONE)
    (tmp_path / "mlflow.db").unlink()
    assert not is_recorded(made, "a", ONE)


def test_a_note_goes_with_a_project_whose_figures_do(
    tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moved(name: str) -> bool:
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        shutil.copy(database, folder)
        note(TrackingSettings(), {}, "a", ONE)
        monkeypatch.chdir(folder.rename(tmp_path / f"{name} moved"))
        return is_recorded(TrackingSettings(), "a", ONE)

    assert moved("figures that are seen from the database")
    monkeypatch.setattr(tracking, "entry_points", lambda **_: ())
    assert not moved("figures that have an absolute place")


def test_of_what_a_server_holds_there_is_no_note() -> None:
    settings = TrackingSettings(mlflow="http://127.0.0.1:9")
    note(settings, {}, "a", ONE)
    assert noted(settings) == {}
    assert not is_recorded(settings, "a", ONE)


def test_the_page_of_a_comparison_is_never_that_of_a_deleted_experiment(made: TrackingSettings) -> None:
    client = client_of(made)
    runs = client.create_experiment("mine")
    summary = client.create_experiment(f"mine{SUMMARY}")
    assert comparison_page_of(client, "mine").startswith(f"#/experiments/{summary}/")
    client.delete_experiment(summary)
    assert comparison_page_of(client, "mine").startswith(f"#/experiments/{runs}/")
    client.delete_experiment(runs)
    assert comparison_page_of(client, "mine") == ""
