"""How a process ends, and cycles of which nothing is left."""

import gc
import os
import signal
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from tasks.process import loading
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
        # A process that has ended stays as a zombie until its parent waits for it.
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


class Ring:
    """Holds itself."""

    def __init__(self) -> None:
        self.itself = self


def test_what_is_loaded_is_never_looked_through_and_what_comes_later_is() -> None:
    with loading():
        assert not gc.isenabled()
        loaded = weakref.ref(Ring())
    assert gc.isenabled()
    later = weakref.ref(Ring())
    gc.collect()
    assert loaded() is not None
    assert later() is None


def test_loading_that_fails_is_over() -> None:
    with pytest.raises(ImportError), loading():
        raise ImportError
    assert gc.isenabled()


def test_a_process_whose_end_is_spared_still_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import tempfile; from tasks.process import spare_the_end; "
        "spare_the_end(); kept = tempfile.TemporaryDirectory()"
    )
    subprocess.run(
        [sys.executable, "-c", code], env={"TMPDIR": str(tmp_path)}, cwd=Path(__file__).parents[2], check=True
    )
    assert list(tmp_path.iterdir()) == []
