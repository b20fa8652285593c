"""Whether stores, folders, databases and servers are there, asked before any work starts."""

import base64
import os
import socket
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from mlflow.server.security import init_security_middleware
from prefect.settings import PREFECT_API_AUTH_STRING, temporary_settings
from werkzeug.serving import make_server

from fedfisher_core.engine.errors import InputError
from flows.probes import require_reachable
from tests.servers import answering, free_port
from tests.tiny import tiny_settings


def require(folder: Path, **changes: Any) -> None:
    require_reachable(tiny_settings(folder, **changes), None)


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"run": {"store": "file/artifacts"}}, "run.store='file/artifacts'"),
        ({"run": {"reports": "file/reports"}}, "run.reports='file/reports'"),
        ({"tracking": {"mlflow_artifacts": "file/figures"}}, "tracking.mlflow_artifacts='file/figures'"),
        ({"name": "taken"}, "the report's folder '{folder}/results/taken' (run.reports and name)"),
        ({"name": "lost"}, "the report's folder '{folder}/results/lost' (run.reports and name)"),
        ({"tracking": {"mlflow": "sqlite:///file/mlflow.db"}}, "tracking.mlflow='sqlite:///file/mlflow.db'"),
        ({"tracking": {"mlflow": "sqlite:///."}}, "tracking.mlflow='sqlite:///.'"),
        ({"tracking": {"mlflow": "sqlite:///text"}}, "tracking.mlflow='sqlite:///text'"),
        ({"tracking": {"mlflow_artifacts": "file"}}, "tracking.mlflow_artifacts='file'"),
        ({"run": {"reports": "."}, "name": "file"}, "the report's folder 'file' (run.reports and name)"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused(workplace: Path, changes: dict[str, Any], setting: str) -> None:
    (workplace / "file").write_text("")
    (workplace / "text").write_text("this is no database, " * 100)
    (workplace / "results").mkdir()
    (workplace / "results/taken").write_text("")
    (workplace / "results/lost").symlink_to("nowhere")
    with pytest.raises(InputError) as caught:
        require(workplace, **changes)
    assert setting.format(folder=workplace) in str(caught.value)


def test_the_folder_of_a_database_is_made(workplace: Path) -> None:
    require(workplace, tracking={"mlflow": "sqlite:///absent/mlflow.db"})
    assert (workplace / "absent").is_dir()


@pytest.mark.parametrize("name", ["plain.db", "with space.db", "100%25.db", "a#b.db"])
def test_a_database_of_any_name_is_found_where_it_is(workplace: Path, name: str) -> None:
    require(workplace, tracking={"mlflow": f"sqlite:///{name}"})
    assert (workplace / name).is_file()


def test_options_of_a_database_are_no_part_of_its_name(workplace: Path) -> None:
    require(workplace, tracking={"mlflow": "sqlite:///runs.db?timeout=20"})
    assert (workplace / "runs.db").is_file()


def test_a_database_that_is_damaged_behind_its_first_page_is_refused(workplace: Path) -> None:
    with closing(sqlite3.connect(workplace / "mlflow.db")) as database:
        database.execute("CREATE TABLE runs (name TEXT)")
        database.executemany("INSERT INTO runs VALUES (?)", [("x" * 100,)] * 2000)
        database.commit()
    content = bytearray((workplace / "mlflow.db").read_bytes())
    content[20 * 4096 : 21 * 4096] = b"\xa5" * 4096
    (workplace / "mlflow.db").write_bytes(content)
    with pytest.raises(InputError, match=r"tracking\.mlflow='sqlite:///mlflow\.db' (is damaged|can't be opened)"):
        require(workplace, tracking={"mlflow": "sqlite:///mlflow.db"})


def test_without_a_temporary_folder_nothing_starts(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(workplace / "absent")])
    with pytest.raises(InputError, match=r"no temporary folder can be written \(TMPDIR\)"):
        require(workplace)


def test_a_database_that_others_read_is_accepted(workplace: Path) -> None:
    require(workplace)
    with closing(sqlite3.connect(workplace / "mlflow.db")) as database:
        database.execute("CREATE TABLE runs (name TEXT)")
        database.execute("BEGIN")
        database.execute("SELECT * FROM runs").fetchall()
        require(workplace)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_database_that_can_only_be_read_is_refused(workplace: Path) -> None:
    require(workplace)
    (workplace / "mlflow.db").chmod(0o444)
    with pytest.raises(InputError, match=r"tracking\.mlflow=.*readonly"):
        require(workplace)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_mlflow_server_that_does_not_answer_is_refused(workplace: Path, scheme: str) -> None:
    uri = f"{scheme}://127.0.0.1:{free_port()}"
    with pytest.raises(InputError, match=f"tracking.mlflow='{uri}' can't be reached: .*refused"):
        require(workplace, tracking={"mlflow": uri})


def test_an_empty_address_of_a_prefect_server_is_none(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "")
    require(workplace)


def test_a_prefect_server_that_does_not_answer_is_refused(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = f"http://127.0.0.1:{free_port()}/api"
    with pytest.raises(InputError, match=f"Prefect server '{api}' .* can't be reached: .*refused"):
        require(workplace, tracking={"prefect_api": api})
    monkeypatch.setenv("PREFECT_API_URL", api)
    with pytest.raises(InputError, match=f"Prefect server '{api}' .*PREFECT_API_URL.* can't be reached"):
        require(workplace)


@pytest.mark.parametrize("uri", ["http://", "http://127.0.0.1:port", "http://[", "https://no host/"])
def test_an_address_that_is_none_is_refused(workplace: Path, uri: str) -> None:
    with pytest.raises(InputError, match=r"tracking\.mlflow=.* can't be reached"):
        require(workplace, tracking={"mlflow": uri})


@contextmanager
def served(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server on a port of its own that treats every connection in its own way."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stopped = threading.Event()

        def serve() -> None:
            while not stopped.is_set():
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(5)
                    if not stopped.is_set():
                        answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        port = listener.getsockname()[1]
        try:
            yield port
        finally:
            stopped.set()
            socket.create_connection(("127.0.0.1", port)).close()
            thread.join()


def _hang_up(connection: socket.socket) -> None:
    connection.recv(1)


def _talk_nonsense(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"220 mail.example.org ESMTP\r\n")


@pytest.mark.parametrize("answer", [_hang_up, _talk_nonsense])
def test_a_server_of_another_kind_is_refused(workplace: Path, answer: Callable[[socket.socket], None]) -> None:
    with served(answer) as port, pytest.raises(InputError, match=r"tracking\.mlflow=.* can't be reached"):
        require(workplace, tracking={"mlflow": f"http://127.0.0.1:{port}"})


def test_a_password_in_an_address_of_the_environment_is_not_shown(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    for address in (f"http://me:hidden/X@127.0.0.1:{port}/api", f"http://me:hidden@127.0.0.1:{port}/api"):
        monkeypatch.setenv("PREFECT_API_URL", address)
        with pytest.raises(InputError, match=f"Prefect server 'http://127.0.0.1:{port}/api' .*refused") as caught:
            require(workplace)
        assert "hidden" not in str(caught.value)


@contextmanager
def _guarding_its_name() -> Iterator[int]:
    """A server with the guard of MLflow's own before it; its port."""
    app = Flask(__name__)
    init_security_middleware(app)
    app.add_url_rule("/health", view_func=lambda: "OK")
    server = make_server("127.0.0.1", 0, app)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_mlflow_server_that_is_called_by_another_name_is_told_from_a_wrong_password(workplace: Path) -> None:
    # A way to write the address that MLflow does not know.
    with (
        _guarding_its_name() as port,
        pytest.raises(
            InputError, match=f"tracking.mlflow='http://127.1:{port}' answers to other names only: 403"
        ) as no,
    ):
        require(workplace, tracking={"mlflow": f"http://127.1:{port}"})
    assert "MLFLOW_SERVER_ALLOWED_HOSTS" in str(no.value)
    assert "credentials" not in str(no.value)


@pytest.mark.parametrize("proxy", ["socks4://me:hidden@127.0.0.1:9", "http://127.0.0.1:port"])
def test_a_proxy_that_no_client_understands_is_named(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("all_proxy", proxy)
    shown = proxy.replace("me:hidden@", "")
    with pytest.raises(InputError, match=f"proxies can't be used: .*all_proxy='{shown}'.*allowed: http") as caught:
        require(workplace)
    assert "hidden" not in str(caught.value)


class _Healthy(BaseHTTPRequestHandler):
    """Answers as MLflow and Prefect do when asked for their health."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path in ("/health", "/api/health", "/api/admin/version") else 404)
        self.end_headers()
        self.wfile.write(b'"3.8.8"')

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


def test_servers_that_answer_are_accepted(workplace: Path) -> None:
    with answering(_Healthy) as address:
        require(workplace, tracking={"mlflow": f"{address}/", "prefect_api": f"{address}/api"})
        with pytest.raises(InputError, match=r"Prefect server .* can't be reached: Not Found"):
            require(workplace, tracking={"mlflow": address, "prefect_api": f"{address}/other"})


class _Unversioned(BaseHTTPRequestHandler):
    """Answers every question with a page, as Prefect's server does where the address lacks /api."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>")

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


def test_a_server_that_is_not_prefects_is_refused(workplace: Path) -> None:
    said = r"Prefect server .* is no API of Prefect; allowed: an address such as"
    # The second server is healthy and knows no page of a version, as MLflow's.
    for kind in (_Unversioned, _Healthy):
        with answering(kind) as address, pytest.raises(InputError, match=said):
            require(workplace, tracking={"prefect_api": address})


class _Guarded(BaseHTTPRequestHandler):
    """Answers everyone who asks for its health, and for more only those who know a password."""

    def do_GET(self) -> None:
        authorization = f"Basic {base64.b64encode(b'me:right').decode()}"
        free = self.path in ("/health", "/api/health")
        self.send_response(200 if free or self.headers.get("Authorization") == authorization else 401)
        self.end_headers()
        self.wfile.write(b'"3.8.8"')

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def guarded() -> Iterator[str]:
    with answering(_Guarded) as address:
        yield address


@pytest.mark.parametrize(
    ("password", "state"), [(None, "asks for credentials: 401"), ("wrong", "refuses the credentials: 401")]
)
def test_an_mlflow_server_that_wants_a_password_is_named(
    workplace: Path, guarded: str, monkeypatch: pytest.MonkeyPatch, password: str | None, state: str
) -> None:
    if password is not None:
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", password)
    with pytest.raises(InputError, match=f"tracking.mlflow='{guarded}' {state} .*MLFLOW_TRACKING_PASSWORD") as caught:
        require(workplace, tracking={"mlflow": guarded})
    assert "wrong" not in str(caught.value)


@pytest.mark.parametrize(
    ("authorization", "state"), [(None, "asks for credentials: 401"), ("me:wrong", "refuses the credentials: 401")]
)
def test_a_prefect_server_that_wants_a_password_is_named(
    workplace: Path, guarded: str, monkeypatch: pytest.MonkeyPatch, authorization: str | None, state: str
) -> None:
    api = f"{guarded}/api"
    with (
        temporary_settings({PREFECT_API_AUTH_STRING: authorization} if authorization else {}),
        pytest.raises(InputError, match=f"Prefect server '{api}' .* {state} .*PREFECT_API_AUTH_STRING") as caught,
    ):
        require(workplace, tracking={"prefect_api": api})
    assert "wrong" not in str(caught.value)


def test_servers_that_know_the_password_are_accepted(
    workplace: Path, guarded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "right")
    with temporary_settings({PREFECT_API_AUTH_STRING: "me:right"}):
        require(workplace, tracking={"mlflow": guarded, "prefect_api": f"{guarded}/api"})
