"""The temporary Prefect server of one command: it starts while the command still loads torch, and dies with it."""

import asyncio
import logging
import os
import select
import socket
import subprocess
import sys
from http import HTTPStatus
from typing import TYPE_CHECKING

from fedfisher_core.engine.errors import InputError, OutputError
from flows.garbage import exit_without_collecting, without_collection
from flows.reach import require_sqlite
from flows.stopping import end_with_input

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

API_VARIABLE = "PREFECT_API_URL"
_TEMPORARY = "temporary"
_START_SECONDS = 150
_LEAVE_SECONDS = 2
_WAITS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
# What a server says in the place of its address.
_REFUSAL = "refused: "
# What Prefect sets for a server of one process: no pages, and no services that look after schedules.
_ENVIRONMENT = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}


class PrefectServer:
    """Prefect's API for one command: the server that is configured, else a temporary one.

    A temporary server ends when the command does, however that ends: it reads a pipe that only the command can write
    to. Prefect sends its last events when the interpreter exits, so that nothing here may stop the server before.

    Args:
        configured: address of the API in the settings; None for what Prefect's own configuration says.
    """

    def __init__(self, configured: str | None) -> None:
        self._address = configured or os.environ.get(API_VARIABLE)
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self.temporary = False
        """Whether the server is known to be a temporary one."""

    def start(self) -> None:
        """Begin to start a temporary server, unless one is known or it was begun before."""
        if self._process is None and self._address is None:
            # In a group of its own: Ctrl-C is for the command.
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | _ENVIRONMENT,
                # What is read of a line is never more than it: `select` tells of the rest.
                bufsize=0,
                process_group=0,
            )

    def find(self) -> None:
        """Learn where the server will answer, and set PREFECT_API_URL, which Prefect reads when it is imported.

        Raises:
            InputError: a temporary server is needed, and its database can't be used.
            OutputError: it does not start.
        """
        self.start()
        if self._address is None:
            address, _, kind = self._said().partition(" ")
            self._address, self.temporary = address, kind == _TEMPORARY
        os.environ[API_VARIABLE] = self._address

    def wait(self) -> None:
        """Wait until the server answers.

        Raises:
            InputError, OutputError: as `find`.
        """
        self.find()
        if self.temporary and not self._ready:
            self._said()
            self._ready = True

    def _said(self) -> str:
        """Read the next line of the temporary server."""
        assert self._process is not None
        assert self._process.stdout is not None
        there, _, _ = select.select([self._process.stdout], [], [], _START_SECONDS)
        line = self._process.stdout.readline().decode().strip() if there else ""
        if line.startswith(_REFUSAL):
            raise InputError(line.removeprefix(_REFUSAL))
        if there and not line:
            raise OutputError("the temporary Prefect server ended before it answered; what it printed says why")
        if not line:
            raise OutputError(
                f"the temporary Prefect server did not start within {_START_SECONDS} s; "
                f"allowed: {API_VARIABLE}, the address of another"
            )
        return line


def main() -> None:
    """Serve until standard input ends; print the API's address and what it is, and another line once it answers."""
    # At once while modules are loaded; uvicorn takes the signal later, and never amid the set-up of the database.
    end_with_input()
    exit_without_collecting()
    with without_collection():
        # Prefect knows of servers in profiles and files too.
        from prefect.settings import get_current_settings

    settings = get_current_settings()
    if settings.api.url:
        _say(settings.api.url)
        return
    try:
        require_sqlite(settings.server.database.connection_url)
    except InputError as error:
        _say(f"{_REFUSAL}{error}")
        return
    with socket.create_server(("127.0.0.1", 0)) as bound:
        # An answer goes out in two parts, and the second would wait 40 ms for the other side to acknowledge the first:
        # asyncio sees to that for sockets of its own alone. Connections have it of the socket that they came by.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The process that started this one loads Prefect at the same time.
        _say(f"http://127.0.0.1:{bound.getsockname()[1]}/api {_TEMPORARY}")
        _serve(bound)


def _say(line: str) -> None:
    try:
        print(line, flush=True)
    except BrokenPipeError:
        # The process that started this one is gone, and no other knows of it.
        os._exit(1)


def _serve(bound: socket.socket) -> None:
    with without_collection():
        import uvicorn
        from prefect.server.api.server import create_app

    # A server that ends amid a query cancels it, and SQLAlchemy would report the connection with a traceback.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)

    class Announced(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            _say("ready")

    config = uvicorn.Config(
        retry_when_busy(create_app()),
        log_level="critical",
        lifespan="on",
        timeout_graceful_shutdown=_LEAVE_SECONDS,
    )
    Announced(config).run(sockets=[bound])


def retry_when_busy(app: "ASGIApp") -> "ASGIApp":
    """Wrap a server so that it tries a request again that its database was too busy for.

    SQLite refuses a transaction's first write if another has written since its first read, and Prefect answers 503.
    Prefect's client then waits two seconds before it asks again, and longer each further time. It asks about the limits
    of a task's tags at the start of each task, which is when the server notes the end of the task before.
    """
    from starlette.requests import Request

    async def serve(scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        request = Request(scope, receive)
        body = await request.body()
        for wait in _WAITS:
            # An application notes in the scope what it found of a request.
            if await _forward(app, dict(scope), _replay_body(body, receive), send):
                return
            await asyncio.sleep(wait)
            if await request.is_disconnected():
                # Its client has sent it again, and it must not be done twice.
                return
        await app(scope, _replay_body(body, receive), send)

    return serve


def _replay_body(body: bytes, receive: "Receive") -> "Receive":
    """Return what gives an application the body of a request, and after that what the client sends next."""
    parts = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive_again() -> "Message":
        return next(parts, None) or await receive()

    return receive_again


async def _forward(app: "ASGIApp", scope: "Scope", receive: "Receive", send: "Send") -> bool:
    """Send an application's answer, unless it is that the service is not available now."""
    answered = True

    async def answer(message: "Message") -> None:
        nonlocal answered
        answered = answered and message.get("status") != HTTPStatus.SERVICE_UNAVAILABLE
        if answered:
            await send(message)

    try:
        await app(scope, receive, answer)
    except Exception:
        # Starlette raises an error again after it has answered.
        if answered:
            raise
    return answered


if __name__ == "__main__":
    main()
