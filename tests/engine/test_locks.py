"""Locks that processes share, and temporary folders that go with their process."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from fedfisher_core.engine.errors import InputError, LockedError
from fedfisher_core.engine.locks import held, scratch, take

HOLDER = """
import sys, time
from pathlib import Path
from fedfisher_core.engine.locks import held
with held(Path(sys.argv[1]), purpose="a test of locks", timeout=0, shared=sys.argv[2] == "shared"):
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def other_process(path: Path, how: str = "alone") -> Iterator[subprocess.Popen[str]]:
    """Let another process hold a lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path), how], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "a.lock"


def test_one_after_the_other_can_hold_it_and_no_note_stays(path: Path) -> None:
    for _ in range(2):
        with held(path, purpose="test", timeout=0):
            assert len(list(path.parent.iterdir())) == 2
    assert list(path.parent.iterdir()) == [path]


def test_the_message_names_who_holds_it_and_for_what(path: Path) -> None:
    with other_process(path) as process:
        expected = rf"a\.lock is locked by process {process.pid} on .+ \(a test of locks, since 2.*\); waited 0.2 s"
        started = time.monotonic()
        with pytest.raises(LockedError, match=expected), held(path, purpose="test", timeout=0.2):
            pass
        assert time.monotonic() - started >= 0.2


@pytest.mark.parametrize(
    ("first", "second", "allowed"),
    [("alone", False, False), ("alone", True, False), ("shared", False, False), ("shared", True, True)],
)
def test_only_those_that_share_it_hold_it_together(path: Path, first: str, second: bool, allowed: bool) -> None:
    with other_process(path, first):
        if allowed:
            with held(path, purpose="test", timeout=0, shared=second):
                pass
        else:
            with pytest.raises(LockedError, match="a test of locks"), held(path, purpose="", timeout=0, shared=second):
                pass


def test_all_that_share_it_are_named(path: Path) -> None:
    with (
        other_process(path, "shared") as one,
        other_process(path, "shared") as two,
        pytest.raises(LockedError) as caught,
        held(path, purpose="test", timeout=0),
    ):
        pass
    assert all(f"process {process.pid} on" in str(caught.value) for process in (one, two))


def test_a_process_is_named_once_for_each_purpose(path: Path) -> None:
    with ExitStack() as holders:
        for purpose in ("run a", "run a", "run b", "run c", "run d", "run e"):
            holders.enter_context(held(path, purpose=purpose, timeout=0, shared=True))
        with pytest.raises(LockedError) as caught, held(path, purpose="test", timeout=0):
            pass
    assert str(caught.value).count(f"process {os.getpid()}") == 3
    assert " and 2 others; waited 0 s" in str(caught.value)


def test_it_waits_for_the_holder(path: Path) -> None:
    with other_process(path) as process:
        process.kill()
        with held(path, purpose="test", timeout=10):
            pass


def test_a_killed_holder_leaves_neither_lock_nor_name(path: Path) -> None:
    with other_process(path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert len(list(path.parent.iterdir())) == 2
        with held(path, purpose="test", timeout=0):
            assert len(list(path.parent.iterdir())) == 2
        assert list(path.parent.iterdir()) == [path]


def test_a_child_that_outlives_the_holder_does_not_keep_it(path: Path) -> None:
    sleeper = "import subprocess; subprocess.Popen(['sleep', '30'], stdout=subprocess.DEVNULL)"
    code = HOLDER.replace('    print("held"', f'    {sleeper}; print("held"')
    started = subprocess.Popen(
        [sys.executable, "-c", code, str(path), "alone"], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert started.stdout is not None
        assert started.stdout.readline() == "held\n"
        started.kill()
        started.wait()
        with held(path, purpose="test", timeout=0):
            pass
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.communicate()


def test_a_forked_child_does_not_keep_it(path: Path) -> None:
    with held(path, purpose="test", timeout=0):
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
    try:
        with held(path, purpose="test", timeout=5):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_child_that_ends_leaves_the_lock_to_its_parent(path: Path) -> None:
    with held(path, purpose="test", timeout=0):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        assert take(path) is None


def test_a_removed_file_is_locked_anew(path: Path) -> None:
    path.parent.mkdir()
    first = take(path)
    assert first is not None
    path.unlink()
    second = take(path)
    assert second is not None
    assert take(path) is None
    first.close()
    second.close()


def _folder(path: Path) -> None:
    path.mkdir()


def _link(path: Path) -> None:
    path.symlink_to("elsewhere")


@pytest.mark.parametrize("place", [_folder, _link], ids=["folder", "link"])
def test_what_is_no_regular_file_is_refused(path: Path, place: object) -> None:
    path.parent.mkdir()
    place(path)  # type: ignore[operator]
    with pytest.raises(InputError, match=r"a\.lock can't be locked"), held(path, purpose="test", timeout=0):
        pass


def test_a_folder_that_is_a_file_is_refused(path: Path) -> None:
    path.parent.write_text("")
    expected = pytest.raises(InputError, match=r"a\.lock can't be locked: File exists")
    with expected, held(path, purpose="test", timeout=0):
        pass


def test_of_a_process_that_holds_it_more_than_once_the_earliest_time_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with ExitStack() as holds:
        holds.enter_context(take(path))
        for number, day in enumerate((2, 1, 3)):
            note = path.with_name(f"{path.name}.{number:032}")
            note.write_text(f"process 1 on here (test, since 2030-01-0{day})")
        said = r"is locked by process 1 on here \(test, since 2030-01-01\); waited"
        with pytest.raises(LockedError, match=said), held(path, purpose="test", timeout=0):
            pass


@contextmanager
def without_rights() -> Iterator[None]:
    """Be a user who owns nothing, where these tests are run by one who may do anything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_that_may_not_be_written_can_be_locked() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = Path(folder) / "a.lock"
        path.touch()
        path.chmod(0o444)
        path.parent.chmod(0o555)
        try:
            with without_rights(), pytest.raises(PermissionError):
                path.open("r+").close()
            with without_rights(), held(path, purpose="test", timeout=0):
                os.seteuid(os.getuid())
                assert take(path) is None
            file = take(path)
            assert file is not None
            file.close()
        finally:
            path.parent.chmod(0o755)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can leave files of another user")
def test_what_another_user_may_hold_counts_as_held() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = Path(folder) / "a.lock"
        path.parent.chmod(0o777)
        hidden = path.with_name(f"{path.name}.{'0' * 32}")
        hidden.touch(0o600)
        with without_rights():
            with held(path, purpose="test", timeout=0, shared=True):
                pass
            with pytest.raises(LockedError, match="has not said who it is"), held(path, purpose="test", timeout=0):
                pass


def test_what_is_no_file_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    path.with_name(f"{path.name}.{'0' * 32}").mkdir()
    with held(path, purpose="test", timeout=0):
        pass


SCRATCH_HOLDER = """
import time
from fedfisher_core.engine.locks import scratch
with scratch() as folder:
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture
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
    with subprocess.Popen([sys.executable, "-c", SCRATCH_HOLDER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        other = Path(process.stdout.readline().strip())
        with scratch():
            assert other.is_dir()
        process.send_signal(signal.SIGKILL)
    assert other.is_dir()
    with scratch() as own:
        assert {path.name for path in root.iterdir()} == {own.name, f"{own.name}.lock"}
