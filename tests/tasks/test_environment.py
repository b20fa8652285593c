"""What is asked by proxy once the environment is prepared, and what is not; and who phones home."""

import os
import pty
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest
import requests
from websockets.proxy import get_proxy
from websockets.uri import parse_uri

from fedfisher_core.engine.store import bucket
from tasks.environment import prepare

ROOT = Path(__file__).parents[2]
SCHEMES = ("http", "https", "all", "no")


class Named(BaseHTTPRequestHandler):
    """Says whether it is a proxy that is asked: such a request names the whole address."""

    def do_GET(self) -> None:
        answer = b"proxy" if "://" in self.path else b"server"
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class V6(ThreadingHTTPServer):
    address_family = socket.AF_INET6


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a server on all addresses of this machine, which can be asked as a proxy too."""
    with V6(("::", 0), Named) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture
def clear(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that names no proxies, and gets back what it had."""
    for name in [*os.environ, *(f"{scheme}_proxy" for scheme in SCHEMES), *(f"{one.upper()}_PROXY" for one in SCHEMES)]:
        if name.lower().endswith("_proxy"):
            monkeypatch.setenv(name, "")
            monkeypatch.delenv(name)


CLIENTS: tuple[Callable[[str], str], ...] = (lambda page: httpx.get(page).text, lambda page: requests.get(page).text)
"""Prefect's and MLflow's."""


@pytest.mark.usefixtures("clear")
@pytest.mark.parametrize("excluded", [None, " elsewhere.test , localhost", "[::1],[fe80::1]:80"])
@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_what_is_here_is_asked_directly_and_all_else_by_proxy(
    port: int, monkeypatch: pytest.MonkeyPatch, name: str, excluded: str | None
) -> None:
    monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
    if excluded is not None:
        monkeypatch.setenv("NO_PROXY", excluded)
    prepare()
    for ask in CLIENTS:
        for host in ("localhost", "127.0.0.1", "[::1]", "0.0.0.0"):
            assert ask(f"http://{host}:{port}/") == "server", host
        assert ask("http://server.test/") == "proxy"


@pytest.mark.usefixtures("clear")
@pytest.mark.parametrize("address", ["socks5://127.0.0.1:9", "socks5h://127.0.0.1:9", "socks://127.0.0.1:9"])
@pytest.mark.parametrize("name", ["all_proxy", "ALL_PROXY", "http_proxy"])
def test_what_is_here_is_asked_past_a_socks_proxy(
    port: int, monkeypatch: pytest.MonkeyPatch, name: str, address: str
) -> None:
    monkeypatch.setenv(name, address)
    prepare()
    for ask in CLIENTS:
        assert ask(f"http://127.0.0.1:{port}/") == "server"
        # Nothing is at the proxy's port.
        with pytest.raises((httpx.ConnectError, requests.ConnectionError)):
            ask("http://server.test/")
    for host in ("127.0.0.1", "localhost", "[::1]"):
        assert get_proxy(parse_uri(f"ws://{host}:{port}/")) is None


@pytest.mark.usefixtures("clear")
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_a_bucket_that_is_here_is_asked_directly(port: int, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    prepare()
    for endpoint, said in ((f"http://{host}:{port}", b"server"), ("http://server.test", b"proxy")):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        bucket._connected.cache_clear()
        assert bucket.Bucket("s3://any").read("any", most_bytes=10) == said
    bucket._connected.cache_clear()


@pytest.mark.usefixtures("clear")
def test_whoever_excludes_all_has_no_proxy(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("no_proxy", "*")
    prepare()
    for ask in CLIENTS:
        with pytest.raises((httpx.ConnectError, requests.ConnectionError)):
            ask("http://server.test/")


@pytest.mark.usefixtures("clear")
def test_without_proxies_nothing_is_named() -> None:
    prepare()
    assert not [name for name in os.environ if name.lower().endswith("_proxy")]


@pytest.mark.drawn(1)
@pytest.mark.parametrize("imported", ["tasks.stages", "flows.experiment"])
def test_who_imports_a_task_or_a_flow_does_not_phone_home(tmp_path: Path, imported: str) -> None:
    """As a Dask worker and a worker of Prefect's do, on a terminal, in a home folder where Prefect was never used."""
    environment = {"HOME": str(tmp_path), "PREFECT_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    mine, theirs = pty.openpty()
    command = [sys.executable, "-c", f"import {imported}; print('imported')"]
    subprocess.run(command, cwd=ROOT, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, check=True)
    said = os.read(mine, 10_000).decode()
    os.close(theirs)
    os.close(mine)
    # The first time Prefect says that it collects what users do, and keeps a number that it knows them by.
    assert said.split() == ["imported"]
    assert not (tmp_path / ".sdk_telemetry").exists()
