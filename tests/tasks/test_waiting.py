"""The slot on a GPU; the machine needs none, since a slot only has a name."""

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedfisher_core.engine.errors import LockedError
from tasks import waiting
from tasks.waiting import gpu_slot

HOLDER = """
import time
from tasks.waiting import gpu_slot
with gpu_slot("one", shared=False, timeout=0):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary folder in which no other process asks for a slot."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@contextmanager
def another_run() -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_the_slot_of_a_killed_run_is_free_for_the_next() -> None:
    with another_run() as process:
        with pytest.raises(LockedError), gpu_slot("one", shared=False, timeout=0):
            pass
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with gpu_slot("one", shared=False, timeout=0):
            pass


def test_whoever_waits_in_vain_is_told_who_holds_the_gpu() -> None:
    with another_run() as process:
        told = rf"gpu-one\.lock is locked by process {process.pid} on .* \(computes on the GPU, since .*waited 0.2 s"
        with pytest.raises(LockedError, match=told), gpu_slot("one", shared=False, timeout=0.2):
            pass
        with gpu_slot("another", shared=False, timeout=0):
            pass


def test_a_long_wait_is_said_before_it_is_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(waiting, "_SILENT_SECONDS", 0.1)
    with another_run() as process:
        threading.Timer(0.5, process.kill).start()
        with caplog.at_level(logging.WARNING, "fedfisher"), gpu_slot("one", shared=False, timeout=30):
            pass
        assert f"locked by process {process.pid}" in caplog.text
        assert "for at most 29.9 s more" in caplog.text


def test_threads_of_one_run_compute_one_after_the_other() -> None:
    inside, most = 0, 0

    def compute() -> None:
        nonlocal inside, most
        with gpu_slot("one", shared=False, timeout=0):
            inside += 1
            most = max(most, inside)
            time.sleep(0.02)
            inside -= 1

    threads = [threading.Thread(target=compute) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, most) == (0, 1)


def test_those_who_share_a_gpu_compute_together() -> None:
    with gpu_slot("one", shared=True, timeout=0), gpu_slot("one", shared=True, timeout=0):
        pass


def test_whoever_wants_a_gpu_alone_and_those_who_share_it_keep_each_other_out() -> None:
    alone = gpu_slot("one", shared=False, timeout=0)
    with gpu_slot("one", shared=True, timeout=0), pytest.raises(LockedError), alone:
        pass
    with another_run(), pytest.raises(LockedError), gpu_slot("one", shared=True, timeout=0):
        pass
