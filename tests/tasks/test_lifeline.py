import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until

ENDS = {"end_with_input": subprocess.PIPE, "end_with_parent": subprocess.DEVNULL}
CHILD = "import time; from tasks import process; process.{end}(); print('there', flush=True); time.sleep(3000)"
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {child!r}], stdin={stdin}, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(3000)
"""


@pytest.mark.parametrize("end", ENDS)
def test_a_child_ends_with_a_killed_parent(end: str) -> None:
    source = PARENT.format(child=CHILD.format(end=end), stdin=ENDS[end])
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_running(child)
        os.kill(parent.pid, signal.SIGKILL)
    wait_until(lambda: not is_running(child), "the child ends")


def is_running(process: int) -> bool:
    try:
        # A process that nobody waits for is there until it is, as a zombie.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_child_ends_whose_parent_was_gone_before_it_looked() -> None:
    child = "import os, time; from tasks import process; print('there', flush=True)\n"
    child += "while os.getppid() == process._PARENT: time.sleep(0.05)\n"
    child += "process.end_with_parent(); time.sleep(3000)"
    source = PARENT.format(child=child, stdin=subprocess.DEVNULL)
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        process = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
    wait_until(lambda: not is_running(process), "the child ends")
