"""A client of a scheduler that is not there, is none, wants certificates or dies: one line says so."""

import gc
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import dask
import pytest
from distributed.security import Security

from fedfisher_core.engine.errors import InputError
from fedfisher_core.settings import RunSettings
from flows import cluster, dask_client
from flows.cluster import require_cluster
from flows.dask_client import connected
from tests.servers import (
    answering,
    free_port,
    scheduler_at,
    wait_for_port,
)
from tests.waiting import HANG_SECONDS

_LOSES = """
import os, signal, sys
from flows.dask_client import connected
try:
    with connected(sys.argv[1], "run.dask.scheduler") as client:
        os.killpg(int(sys.argv[2]), signal.SIGKILL)
        client.run(os.getpid)
except OSError:
    print("lost")
"""


def test_a_scheduler_that_dies_is_told_by_an_error_and_no_log() -> None:
    port = free_port()
    with scheduler_at(port, dict(os.environ)) as scheduler:
        wait_for_port(port)
        command = [sys.executable, "-c", _LOSES, f"tcp://127.0.0.1:{port}", str(scheduler.process)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert (done.returncode, done.stdout) == (0, "lost\n"), done.stderr
    assert not done.stderr


NO_SERVER = "http://127.0.0.1:9/api"


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def settings(store: Path, scheduler: str, device: str = "cpu") -> RunSettings:
    return RunSettings(runner="dask", dask={"scheduler": scheduler}, store=store, device=device)


def test_a_scheduler_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"run\.dask\.scheduler='tcp://127\.0\.0\.1:9' can't be reached: .*refused"):
        require_cluster(settings(tmp_path, "tcp://127.0.0.1:9"), NO_SERVER)


def test_what_is_no_scheduler_is_told_from_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_client, "_PATIENCE_SECONDS", 1)
    with answering(Healthy) as address:
        place = address.replace("http", "tcp")
        with pytest.raises(InputError, match=rf"^run\.dask\.scheduler='{place}' can't be reached: .* a Dask scheduler"):
            require_cluster(settings(tmp_path, place), NO_SERVER)


def certificate(folder: Path) -> dict[str, str]:
    """Files of a certificate that is its own authority, as Dask's configuration names them."""
    folder.mkdir()
    security, files = Security.temporary(), {}
    for name in ("tls_ca_file", "tls_client_cert", "tls_client_key", "tls_scheduler_cert", "tls_scheduler_key"):
        (folder / name).write_text(getattr(security, name))
        role, _, kind = name.removeprefix("tls_").partition("_")
        files[f"distributed.comm.tls.{'ca-file' if role == 'ca' else f'{role}.{kind}'}"] = str(folder / name)
    return files


def test_a_scheduler_of_another_authority_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_WORKERS_SECONDS", 0)
    theirs, ours = (certificate(tmp_path / name) for name in ("theirs", "ours"))
    variables = {f"DASK_{key.upper().replace('.', '__').replace('-', '_')}": path for key, path in theirs.items()}
    port = free_port()
    place = f"tls://127.0.0.1:{port}"
    with scheduler_at(port, {**os.environ, **variables}, "--protocol", "tls"):
        wait_for_port(port)
        for known, message in (
            (theirs, rf"^run\.dask\.scheduler='{place}' has no workers"),
            (ours, rf"^run\.dask\.scheduler='{place}' can't be reached: TLS certificate does not match"),
        ):
            with dask.config.set(known), pytest.raises(InputError, match=message):
                require_cluster(settings(tmp_path / "store", place), NO_SERVER)


def test_a_scheduler_that_wants_certificates_is_refused_at_once(tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(InputError, match=r"^run\.dask\.scheduler='tls://.*' needs certificates; allowed: "):
        require_cluster(settings(tmp_path, "tls://127.0.0.1:9"), NO_SERVER)
    gc.collect()
    assert time.monotonic() - start < 10


def test_certificates_that_are_not_there_are_said(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    with (
        dask.config.set({"distributed.comm.tls.ca-file": absent, "distributed.comm.tls.client.cert": absent}),
        pytest.raises(InputError, match=r"^run\.dask\.scheduler='tls://.*: the certificates .* can't be used: "),
    ):
        require_cluster(settings(tmp_path, "tls://127.0.0.1:9"), NO_SERVER)


def test_an_address_that_is_none_is_named() -> None:
    with (
        pytest.raises(InputError, match=r"^here: Invalid IPv6 URL; allowed: tcp://HOST:PORT"),
        connected("tcp://[::1:8786", "here"),
    ):
        pass
