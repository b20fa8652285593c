import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from http import HTTPStatus
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from fedfisher_core.engine.errors import InputError, OutputError
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


@pytest.mark.drawn(0)
def test_a_locked_database_of_prefect_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    with closing(sqlite3.connect(tmp_path / "prefect.db")) as database:
        database.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InputError, match=r"Prefect's database .*locked"):
            PrefectServer(None).wait()


def test_a_server_that_ends_as_it_starts_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "__name__", "no_module_of_this_name")
    with pytest.raises(OutputError, match=r"ended before it answered; what it printed says why"):
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


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[int]]:
    """Send a request through `retry_when_busy` to a server that is busy at first; return its tries and the status."""
    monkeypatch.setattr(server, "_WAITS", (0.0, 0.0))

    def send(refusals: int) -> list[int]:
        bodies: list[bytes] = []

        async def count(request: Request) -> Response:
            bodies.append(await request.body())
            if len(bodies) <= refusals:
                raise sqlite3.OperationalError("database is locked")
            return Response(status_code=HTTPStatus.CREATED)

        async def refuse(_: Request, error: Exception) -> Response:
            # As Prefect does it; Starlette raises the error again after this answer.
            return Response(status_code=HTTPStatus.SERVICE_UNAVAILABLE)

        app = Starlette(routes=[Route("/", count, methods=["POST"])], exception_handlers={Exception: refuse})

        async def post() -> int:
            transport = httpx.ASGITransport(server.retry_when_busy(app), raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return (await client.post("/", content=b"two slots")).status_code

        status = asyncio.run(post())
        assert set(bodies) == {b"two slots"}
        return [len(bodies), status]

    return send


def test_a_request_that_the_database_was_too_busy_for_is_tried_again(busy: Callable[[int], list[int]]) -> None:
    assert busy(0) == [1, HTTPStatus.CREATED]
    assert busy(1) == [2, HTTPStatus.CREATED]
    assert busy(2) == [3, HTTPStatus.CREATED]


def test_a_database_that_stays_too_busy_is_told_to_the_client(busy: Callable[[int], list[int]]) -> None:
    assert busy(9) == [3, HTTPStatus.SERVICE_UNAVAILABLE]


def test_a_request_is_not_tried_again_for_a_client_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_WAITS", (0.0, 0.0))
    tries = []

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        tries.append(scope["path"])
        await send({"type": "http.response.start", "status": HTTPStatus.SERVICE_UNAVAILABLE, "headers": []})

    async def leave() -> Message:
        return {"type": "http.disconnect"} if tries else {"type": "http.request", "body": b"", "more_body": False}

    async def send(_: Message) -> None:
        raise AssertionError("the client is gone")

    asyncio.run(server.retry_when_busy(refuse)({"type": "http", "path": "/slots"}, leave, send))
    assert tries == ["/slots"]
