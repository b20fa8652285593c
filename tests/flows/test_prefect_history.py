"""Notes of flow runs, where several commands tidy up at once."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.objects import FlowRun

from fedfisher_core.engine.locks import take
from flows import prefect_history
from flows.prefect_history import tidy
from tests.waiting import HANG_SECONDS


class Client:
    """What removes runs from a database, and nothing else."""

    def __init__(self, removing: Callable[[UUID], object]) -> None:
        self.delete_flow_run = removing

    def read_flow_runs(self, **_: Any) -> list[Any]:
        return []

    def read_artifacts(self, **_: Any) -> list[Any]:
        return []


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three of runs that have ended."""
    # Other threads have Prefect's settings of their own.
    monkeypatch.setattr(prefect_history, "_folder", lambda: tmp_path)
    for _ in range(3):
        (tmp_path / str(uuid4())).touch()
    return tmp_path


def removing(monkeypatch: pytest.MonkeyPatch, call: Callable[[UUID], object]) -> None:
    @contextmanager
    def get_client(**_: Any) -> Iterator[Client]:
        yield Client(call)

    monkeypatch.setattr(prefect_history, "get_client", get_client)


def test_two_that_remove_the_same_run_both_go_on(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(2, timeout=HANG_SECONDS)
    removing(monkeypatch, lambda _: together.wait())
    failed = []

    def tidy_up() -> None:
        try:
            tidy(kept=1)
        except OSError as error:
            failed.append(error)

    # Which notes are free is looked at one after the other: for a moment who looks holds them.
    looking, is_free = threading.Lock(), prefect_history._is_free

    def look(path: Path) -> bool:
        with looking:
            return is_free(path)

    monkeypatch.setattr(prefect_history, "_is_free", look)
    threads = [threading.Thread(target=tidy_up) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(list(notes.iterdir())) == 1


def test_a_note_that_another_removes_while_it_is_listed_is_passed_over(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = sorted(notes.iterdir())
    iterdir, removed = Path.iterdir, []

    def list_slowly(folder: Path) -> list[Path]:
        found = list(iterdir(folder))
        if folder == notes:
            first.unlink(missing_ok=True)
        return found

    removing(monkeypatch, removed.append)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", list_slowly)
        tidy(kept=0)
    assert {str(run) for run in removed} == {other.name for other in others}
    assert list(notes.iterdir()) == []


def test_a_run_holds_its_file_though_another_command_looks_at_it(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = FlowRun(id=uuid4(), flow_id=uuid4())
    monkeypatch.setattr(prefect_history, "_run_files", {})
    looking = take(notes / str(run.id))
    assert looking is not None
    monkeypatch.setattr(prefect_history.time, "sleep", lambda _: looking.close())
    prefect_history._note(None, run, None)
    assert take(notes / str(run.id)) is None
    # Prefect calls it once more where it tries a flow again.
    monkeypatch.setattr(prefect_history.time, "sleep", lambda _: pytest.fail("it holds the file already"))
    prefect_history._note(None, run, None)
    prefect_history._run_files[run.id].close()
