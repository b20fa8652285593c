"""What tasks in processes ask, and are answered."""

import threading
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.batches import Batch
from fedfisher_core.jobs import graph_of
from fedfisher_core.store import Store
from fedfisher_core.walk import Walk
from flows import processes
from flows.processes import Processes
from flows.streams import Receiver, Sender
from tasks.job import Done
from tests.flows.sleeping import Sleep

DONE = [Done(None, 1.0)]


class Ended:
    """A pool whose processes have ended, of which this one plays the only one."""

    def __enter__(self) -> None:
        """See `TaskRunner`."""

    def __exit__(self, *reason: Any) -> None:
        """See `TaskRunner`."""


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    made: dict[str, Any] = {}

    def pool(**given: Any) -> Ended:
        made.update(given)
        return Ended()

    monkeypatch.setattr(processes, "ProcessPoolTaskRunner", pool)
    workers = Processes(1)
    _, (end,) = made["initargs"]
    monkeypatch.setattr(processes, "_pipe", end)
    before = set(threading.enumerate())
    with workers:
        (answering,) = set(threading.enumerate()) - before
        yield workers
    answering.join(timeout=10)
    assert not answering.is_alive()


def batches_of(folder: Path, *jobs: Sleep) -> tuple[Batch, ...]:
    walk = Walk(graph_of(jobs), Store(folder))
    batches = [walk.take() for _ in jobs]
    return tuple(batch for batch in batches if batch is not None)


def sent(following: Any) -> Any:
    """What arrives in a process."""
    return Receiver().unpacked(Sender().packed(following))


def test_a_task_is_told_what_is_next(workers: Processes, tmp_path: Path) -> None:
    first, second = batches_of(tmp_path, Sleep(name="a"), Sleep(name="b"))
    left, heard = [(first,), (second,), ()], []

    def answer(done: list[Done]) -> tuple[Batch, ...]:
        heard.append(done)
        return left.pop(0)

    asking = sent(workers.following(answer))
    assert [[one.name for one in asking(DONE)] for _ in range(3)] == [["a"], ["b"], []]
    assert heard == [DONE] * 3


def test_each_task_is_answered_by_its_own(workers: Processes, tmp_path: Path) -> None:
    one, other = batches_of(tmp_path, Sleep(name="a"), Sleep(name="b"))
    tasks = [sent(workers.following(lambda done, batch=batch: (batch,))) for batch in (one, other, one)]
    assert [task(DONE)[0].name for task in (tasks[0], tasks[0], tasks[2], tasks[1], tasks[1])] == list("aaabb")


def test_a_task_ends_before_what_can_not_be_sent(workers: Processes, tmp_path: Path) -> None:
    # An error may hold anything.
    (batch,) = batches_of(tmp_path, Sleep(name="a", error=ValueError(get_context("spawn").Lock())))
    assert sent(workers.following(lambda done: (batch,)))(DONE) == ()


def test_the_answer_of_a_task_that_was_stopped_is_not_the_next_one_s(
    workers: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (batch,) = batches_of(tmp_path, Sleep(name="a"))
    stopped, following = (sent(workers.following(lambda done: (batch,))) for _ in range(2))

    def too_long(receiver: Receiver, data: bytes) -> None:
        raise TimeoutError

    with monkeypatch.context() as patch:
        patch.setattr(Receiver, "unpacked", too_long)
        with pytest.raises(TimeoutError):
            stopped(DONE)
    assert following(DONE) == ()
