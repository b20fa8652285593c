"""Which runs use a store, and which may delete from it."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedfisher_core.engine.errors import LockedError
from fedfisher_core.engine.store import Store
from fedfisher_core.engine.store import folder_store as implementation

USER = """
import sys, time
from pathlib import Path
from fedfisher_core.engine.store import Store
with Store(Path(sys.argv[1])).in_use("fedfisher run a.yaml"):
    print("in use", flush=True)
    time.sleep(60)
"""

RUN = """
import sys, time
from pathlib import Path
from fedfisher_core.engine.store import Store
with Store(Path(sys.argv[1])).used_by_run("fedfisher run"):
    print("runs", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(implementation, "_ALONE_SECONDS", 0.2)
    monkeypatch.setattr(implementation, "_LEASE_SECONDS", 0.2)
    return Store(tmp_path / "artifacts")


def test_several_use_it_and_then_one_is_alone(store: Store) -> None:
    with store.in_use("a"), store.in_use("b"):
        pass
    with store.alone("c"):
        pass


def test_nobody_is_alone_while_another_process_uses_it_and_its_death_ends_that(store: Store) -> None:
    process = subprocess.Popen([sys.executable, "-c", USER, str(store.root)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        expected = rf"locked by process {process.pid} on .* \(fedfisher run a\.yaml, since"
        with pytest.raises(LockedError, match=expected), store.alone("prune"):
            pass
        with store.in_use("another"):
            pass
    finally:
        process.kill()
        process.communicate()
    with store.alone("prune"):
        pass


def test_nobody_uses_it_while_one_is_alone(store: Store) -> None:
    with store.alone("prune"):
        with pytest.raises(LockedError, match="prune"), store.in_use("run"):
            pass
        with pytest.raises(LockedError, match="prune"), store.alone("another prune"):
            pass


def test_only_the_only_run_is_told_so(store: Store) -> None:
    with store.used_by_run("a") as run:
        with store.only_user(run) as only:
            assert only
        process = subprocess.Popen([sys.executable, "-c", RUN, str(store.root)], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            process.stdout.readline()
            for _ in range(2):
                with store.only_user(run) as only:
                    assert not only
        finally:
            process.kill()
            process.communicate()
        with store.only_user(run) as only:
            assert only


def test_no_run_begins_while_one_deletes_and_two_never_do_so_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(implementation, "_LEASE_SECONDS", 0.2)
    with store.used_by_run("a") as first:
        with store.used_by_run("b") as second, store.only_user(first) as one, store.only_user(second) as two:
            assert not one
            assert not two
        with store.only_user(first) as only:
            assert only
            with pytest.raises(LockedError), store.used_by_run("b"):
                pass
        with store.used_by_run("b") as second, store.only_user(second) as two:
            assert not two


def test_a_look_keeps_no_run_from_deleting_but_a_prune(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implementation, "_ALONE_SECONDS", 0.2)
    with store.in_use("a look"), store.used_by_run("a run") as run, store.only_user(run) as only:
        assert only
        with pytest.raises(LockedError), store.alone("prune"):
            pass
