"""The temporary Prefect server, for real."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

pytestmark = pytest.mark.end_to_end

COMMAND = """
import os, time
from flows.server import API_VARIABLE, PrefectServer
server = PrefectServer(None)
server.start()
server.wait()
print(os.environ[API_VARIABLE], flush=True)
time.sleep(600)
"""


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5):
            return True
    except OSError:
        return False


def test_the_temporary_server_dies_with_a_killed_command(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    environment |= {"PREFECT_HOME": str(tmp_path), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    command = [sys.executable, "-c", COMMAND]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert answers(address)
        os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 15
    while answers(address) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not answers(address)
