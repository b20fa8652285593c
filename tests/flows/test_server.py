import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from fedfisher_core.engine.errors import InputError
from flows import server
from flows.server import API_VARIABLE, PrefectServer
from tests.waiting import HANG_SECONDS


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """No address at first, and none left behind."""
    monkeypatch.setenv(API_VARIABLE, "")
    monkeypatch.delenv(API_VARIABLE)


def test_a_configured_server_is_used_and_none_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.subprocess, "Popen", None)
    chosen = PrefectServer("http://127.0.0.1:1/api")
    chosen.start()
    chosen.wait()
    assert server.os.environ[API_VARIABLE] == "http://127.0.0.1:1/api"


def test_a_profile_of_prefect_names_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "profiles.toml").write_text(
        'active = "own"\n[profiles.own]\nPREFECT_API_URL = "http://127.0.0.1:2/api"\n'
    )
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    PrefectServer(None).wait()
    assert server.os.environ[API_VARIABLE] == "http://127.0.0.1:2/api"


def test_a_locked_database_of_prefect_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    with closing(sqlite3.connect(tmp_path / "prefect.db")) as database:
        database.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InputError, match=r"Prefect's database .*locked"):
            PrefectServer(None).wait()


def test_a_server_that_does_not_start_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "__name__", "no_module_of_this_name")
    with pytest.raises(InputError, match=r"did not start.*PREFECT_API_URL"):
        PrefectServer(None).wait()


def test_a_server_that_nobody_listens_to_ends_without_a_word(tmp_path: Path) -> None:
    environment = os.environ | {"PREFECT_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "flows.server"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(timeout=HANG_SECONDS) == 1
        assert process.stderr.read() == b""
