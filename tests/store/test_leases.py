"""A store in use is nobody's alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedfisher_core.locks import LockedError
from fedfisher_core.store import Store
from fedfisher_core.store import store as implementation

USER = """
import sys, time
from pathlib import Path
from fedfisher_core.store import Store
with Store(Path(sys.argv[1])).in_use("fedfisher run a.yaml"):
    print("in use", flush=True)
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
