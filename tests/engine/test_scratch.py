"""Temporary folders and what is left of killed processes."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fedfisher_core.engine.locks import scratch, take

PROGRAM = """
import time
from fedfisher_core.engine.locks import scratch
with scratch() as folder:
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_a_folder_is_removed_in_the_end(root: Path) -> None:
    with scratch() as folder:
        (folder / "payload").write_text("a")
        assert folder.parent == root
        assert folder.stat().st_mode & 0o077 == 0
    assert list(root.iterdir()) == []


def test_a_process_that_looks_at_the_new_lock_at_the_wrong_moment_is_waited_for(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = iter([None, None])
    monkeypatch.setattr("fedfisher_core.engine.locks.take", lambda path: next(tries, None) or take(path))
    with scratch() as folder:
        assert folder.is_dir()
    assert list(root.iterdir()) == []


def test_a_folder_is_removed_after_an_error(root: Path) -> None:
    with pytest.raises(ValueError, match="out of paper"), scratch():
        raise ValueError("out of paper")
    assert list(root.iterdir()) == []


def test_folders_in_use_stay_and_those_of_the_killed_go(root: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        other = Path(process.stdout.readline().strip())
        with scratch():
            assert other.is_dir()
        process.send_signal(signal.SIGKILL)
    assert other.is_dir()
    with scratch() as own:
        assert {path.name for path in root.iterdir()} == {own.name, f"{own.name}.lock"}
