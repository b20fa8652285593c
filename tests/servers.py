"""Servers that tests start, and what they listen on."""

import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from tests.waiting import HANG_SECONDS, wait_until

DASK = (sys.executable, "-m", "dask")
# Below the ports that the system hands out on request, with forty for each of five hundred processes.
_FIRST_PORT = 10_000 + 40 * (os.getpid() % 500)
_PORTS = itertools.cycle(range(_FIRST_PORT, _FIRST_PORT + 40))


class stopped_after:
    """Runs a server until the block ends."""

    def __init__(
        self,
        command: list[str],
        environment: dict[str, str],
        cwd: Path | None = None,
        *,
        by: signal.Signals = signal.SIGINT,
        log: Path | None = None,
    ) -> None:
        self._by = by
        self._start: dict[str, Any] = {"args": command, "env": environment, "cwd": cwd}
        self._log = log or Path(os.devnull)

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(**self._start, stdout=log, stderr=log, start_new_session=True)
        return self

    @property
    def process(self) -> int:
        """Its number."""
        return self._process.pid

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            # A test may have killed it.
            os.killpg(self._process.pid, self._by)
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@contextmanager
def answering(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """An HTTP server in a thread of its own; its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def free_port() -> int:
    """A port that no other process takes before the caller does."""
    return next(port for port in _PORTS if _is_free(port))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_for(address: str) -> None:
    def answers() -> bool:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return True
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    wait_until(answers, f"{address} answers")


def wait_for_port(port: int) -> None:
    """Wait for a server that speaks no HTTP."""

    def listens() -> bool:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                return True
        except OSError:
            return False

    wait_until(listens, f"a server listens on port {port}")


@contextmanager
def dask_scheduler(environment: Mapping[str, str]) -> Iterator[str]:
    """A Dask scheduler without workers."""
    port = free_port()
    with scheduler_at(port, environment):
        wait_for_port(port)
        yield f"tcp://127.0.0.1:{port}"


def scheduler_at(port: int, environment: Mapping[str, str], *options: str) -> stopped_after:
    command = [*DASK, "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard", *options]
    return stopped_after(command, dict(environment))


def dask_worker(
    scheduler: str, environment: Mapping[str, str], folder: Path, *options: str, program: tuple[str, ...] = DASK
) -> stopped_after:
    """A worker of a Dask scheduler, in a folder of its own, with its log."""
    command = [*program, "worker", scheduler, "--nthreads", "1", "--host", "127.0.0.1", "--no-dashboard", *options]
    # It would take its leave of the scheduler for seconds.
    return stopped_after(command, dict(environment), folder, by=signal.SIGKILL, log=folder / "log")


@contextmanager
def added_worker(
    scheduler: str, environment: Mapping[str, str], folder: Path, *options: str, program: tuple[str, ...] = DASK
) -> Iterator[str]:
    """Add a worker to a scheduler that other tests use too; its address. The scheduler has forgotten it afterwards."""
    from distributed import Client

    with Client(scheduler, timeout=HANG_SECONDS, set_as_default=False) as client:
        before = set(client.nthreads())
        with dask_worker(scheduler, environment, folder, *options, program=program):
            client.wait_for_workers(len(before) + 1, timeout=HANG_SECONDS)
            (added,) = set(client.nthreads()) - before
            yield added
        wait_until(lambda: added not in client.nthreads(), f"the scheduler forgets {added}, which was killed")


@contextmanager
def dask_cluster(environment: Mapping[str, str], folder: Path) -> Iterator[str]:
    """A scheduler with two workers, each in a folder of its own that has no data."""
    environment = {key: value for key, value in environment.items() if key != "FEDFISHER_DATA_DIR"}
    with ExitStack() as stack:
        address = stack.enter_context(dask_scheduler(environment))
        for name in ("one", "two"):
            (folder / name).mkdir()
            stack.enter_context(dask_worker(address, environment, folder / name, "--name", name))
        wait_for_workers(address, 2)
        yield address


def wait_for_workers(scheduler: str, count: int) -> None:
    from distributed import Client

    with Client(scheduler, timeout=HANG_SECONDS, set_as_default=False) as client:
        client.wait_for_workers(count, timeout=HANG_SECONDS)
