"""Writers that live, that were killed, and whose disk is full."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.store import Content, Recipe, Store

RECIPE = Recipe(kind="clients", version=1, settings={})
CONTENT = Content(tensors={"tensors.safetensors": {"a": torch.ones(2**20)}}, documents={"info.json": {"loss": 0.5}})
WRITER = """
import sys, time
from pathlib import Path
from fedfisher_core.engine.store.writing import new_folder
with new_folder(Path(sys.argv[1])) as folder:
    (folder / "tensors.safetensors").write_bytes(b"half")
    print(folder, flush=True)
    time.sleep(60)
"""
WRITES = """
import sys
from pathlib import Path
import tests.engine.store.test_writing as test
store = test.Store(Path(sys.argv[1]))
content = test.Content(files={"a": b"a" * 10**5})
for number in range(10**6):
    store.write(test.Recipe(kind="clients", version=1, settings={"number": number}), content)
    print(number, flush=True)
"""


@contextmanager
def writer(store: Store) -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    """Let another process write."""
    command = [sys.executable, "-c", WRITER, str(store.root / ".writing")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
    finally:
        process.kill()
        process.communicate()


def test_the_folder_of_a_living_writer_stays(store: Store) -> None:
    with writer(store) as (_, folder):
        store.prepare()
        assert (folder / "tensors.safetensors").read_bytes() == b"half"


def test_the_folder_of_a_living_writer_stays_whatever_its_process_is_called(store: Store) -> None:
    """As in another container, whose process numbers mean nothing here."""
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    writing = store.root / ".writing"
    code = WRITER.replace("import sys", f"import os; os.getpid = lambda: {gone.pid}\nimport sys")
    process = subprocess.Popen([sys.executable, "-c", code, str(writing)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        store.prepare()
        assert (folder / "tensors.safetensors").is_file()
    finally:
        process.kill()
        process.communicate()


def test_the_folder_of_a_killed_writer_is_swept(store: Store) -> None:
    with writer(store) as (process, folder):
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert folder.is_dir()
        store.prepare()
        assert list((store.root / ".writing").iterdir()) == []


def test_what_no_writer_made_stays(store: Store) -> None:
    foreign = store.root / ".writing" / ".DS_Store"
    foreign.write_bytes(b"")
    os.mkfifo(store.root / ".writing" / "a.lock")
    store.prepare()
    assert foreign.exists()
    store.write(RECIPE, CONTENT)


def test_sweeping_while_others_write_harms_nobody(store: Store) -> None:
    root = str(Path(__file__).parents[3])
    command = [sys.executable, "-c", WRITES, str(store.root)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": root}
    )
    try:
        assert process.stdout is not None
        for _ in range(50):
            store.prepare()
            assert process.stdout.readline()
    finally:
        process.kill()
        _, errors = process.communicate()
    assert errors == ""
    store.prepare()
    assert list((store.root / ".writing").iterdir()) == []
    assert sorted((store.root / "clients").iterdir()) == store.folders()
    assert len(store.folders()) >= 50


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file grow beyond a size, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_one_clear_error_and_leaves_nothing(store: Store) -> None:
    expected = pytest.raises(InputError, match=r"run\.store=.*artifacts' can't be written: File too large")
    with largest_file(2**20), expected:
        store.write(RECIPE, CONTENT)
    assert list((store.root / ".writing").iterdir()) == []
    assert store.find(RECIPE) is None
    assert store.write(RECIPE, CONTENT) == store.find(RECIPE)


def test_a_disk_that_is_full_from_the_start_is_refused(store: Store) -> None:
    with largest_file(0), pytest.raises(InputError, match=r"run\.store=.*artifacts' can't be written: File too large"):
        store.prepare()
