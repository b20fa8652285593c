"""The temporary Prefect server of one command: it starts while the command still loads torch, and dies with it."""

import os
import select
import socket
import subprocess
import sys
import threading
import time
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from fedfisher_core.errors import InputError

if TYPE_CHECKING:
    import uvicorn

API_VARIABLE = "PREFECT_API_URL"
_START_SECONDS = 150
_STOP_SECONDS = 5
# What Prefect sets for a server of one process: no pages, and no services that look after schedules.
_ENVIRONMENT = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}


class PrefectServer:
    """Prefect's API for one command: the server that is configured, else a temporary one.

    A context, whose end stops a temporary server. The server also ends when the command dies, however it dies: it
    reads a pipe that only the command can write to.

    Args:
        configured: address of the API in the settings; None for what Prefect's own configuration says.
    """

    def __init__(self, configured: str | None) -> None:
        self._address = configured or os.environ.get(API_VARIABLE)
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Begin to start a temporary server, unless one is known or it was begun before."""
        if self._process is None and self._address is None:
            # In a group of its own: Ctrl-C is for the command, which stops the server when it needs it no more.
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
            InputError: it does not start.
        """
        self.start()
        if self._address is None:
            self._address = self._announced()
        os.environ[API_VARIABLE] = self._address

    def _announced(self) -> str:
        assert self._process is not None
        output = _pipe(self._process.stdout)
        there, _, _ = select.select([output], [], [], _START_SECONDS)
        address = output.readline().strip() if there else ""
        if not address:
            raise InputError(
                f"the temporary Prefect server did not start within {_START_SECONDS} s; "
                f"allowed: {API_VARIABLE}, the address of another"
            )
        return address

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        _pipe(self._process.stdin).close()
        if self._address is None:
            self._process.kill()
        self._process.wait()
        _pipe(self._process.stdout).close()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def main() -> None:
    """Serve until standard input ends, and print the API's address once it answers."""
    # Prefect knows of servers in profiles and files too.
    from prefect.settings import get_current_settings

    configured = get_current_settings().api.url
    if configured:
        print(configured, flush=True)
        return
    import uvicorn

    application = "prefect.server.api.server:create_app"
    server = uvicorn.Server(uvicorn.Config(application, factory=True, log_level="error", lifespan="on"))
    with socket.create_server(("127.0.0.1", 0)) as bound:
        address = f"http://127.0.0.1:{bound.getsockname()[1]}/api"
        threading.Thread(target=_accompany, args=(server, address), daemon=True).start()
        server.run(sockets=[bound])


def _accompany(server: "uvicorn.Server", address: str) -> None:
    """Say when the server answers, and end it with whoever has started it."""
    while not server.started:
        time.sleep(0.02)
    try:
        print(address, flush=True)
        sys.stdin.read()
    finally:
        server.should_exit = True
        # Whatever still holds a connection open then is gone, or about to go.
        time.sleep(_STOP_SECONDS)
        os._exit(1)


if __name__ == "__main__":
    main()
