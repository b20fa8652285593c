"""What a client of a scheduler that dies says: nothing but the error that its caller gets."""

import os
import subprocess
import sys

from tests.servers import free_port, scheduler_at, wait_for_port

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
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "lost\n"), done.stderr
    assert not done.stderr
