"""The temporary Prefect server of one command: it starts while the command still loads torch, and dies with it."""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fedfisher_core.errors import InputError
from flows.databases import require_database, require_writable

if TYPE_CHECKING:
    from pydantic import SecretStr

API_VARIABLE = "PREFECT_API_URL"
_TEMPORARY = "temporary"
_START_SECONDS = 150
_LEAVE_SECONDS = 2
_STOP_SECONDS = 60
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
        self._process: subprocess.Popen[str] | None = None
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
                text=True,
                process_group=0,
            )

    def wait(self) -> None:
        """Wait until the server answers, and set PREFECT_API_URL, which Prefect reads when it is imported.

        Raises:
            InputError: it does not start, or its database can't be used.
        """
        self.start()
        if self._address is None:
            self._address = self._announced()
        os.environ[API_VARIABLE] = self._address

    def _announced(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        there, _, _ = select.select([self._process.stdout], [], [], _START_SECONDS)
        address = self._process.stdout.readline().strip() if there else ""
        if address.startswith(_REFUSAL):
            raise InputError(address.removeprefix(_REFUSAL))
        if not address:
            raise InputError(
                f"the temporary Prefect server did not start within {_START_SECONDS} s; "
                f"allowed: {API_VARIABLE}, the address of another"
            )
        address, _, kind = address.partition(" ")
        self.temporary = kind == _TEMPORARY
        return address


def main() -> None:
    """Serve until standard input ends, and print the API's address and what it is once it answers."""
    threading.Thread(target=_end_with_input, daemon=True).start()
    # Prefect knows of servers in profiles and files too.
    from prefect.settings import get_current_settings

    settings = get_current_settings()
    if settings.api.url:
        print(settings.api.url, flush=True)
        return
    try:
        _require_sqlite(settings.server.database.connection_url)
    except InputError as error:
        print(f"{_REFUSAL}{error}", flush=True)
        return
    import uvicorn

    class Announced(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            print(address, _TEMPORARY, flush=True)

    with socket.create_server(("127.0.0.1", 0)) as bound:
        address = f"http://127.0.0.1:{bound.getsockname()[1]}/api"
        config = uvicorn.Config(
            "prefect.server.api.server:create_app",
            factory=True,
            log_level="critical",
            lifespan="on",
            timeout_graceful_shutdown=_LEAVE_SECONDS,
        )
        Announced(config).run(sockets=[bound])


def _require_sqlite(address: "SecretStr | None") -> None:
    """Check a database that is a file; Prefect itself would wait for it without a word."""
    from sqlalchemy import make_url

    url = make_url(address.get_secret_value()) if address else None
    if url is not None and url.get_backend_name() == "sqlite" and url.database not in (None, ":memory:"):
        path = Path(str(url.database))
        name = f"Prefect's database {str(path)!r} (in PREFECT_HOME)"
        require_writable(path.parent, name)
        require_database(path, name)


def _end_with_input() -> None:
    """Stop with whoever holds the other end: at once while modules are loaded, and not amid the database's set-up."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_STOP_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
