"""Tasks in threads that go on with one group after another."""

import math
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prefect import Task
from prefect.task_runners import ThreadPoolTaskRunner

from fedfisher_core.errors import JobError
from fedfisher_core.jobs import Job, graph_of
from fedfisher_core.settings import WorkSettings
from fedfisher_core.store import Store
from fedfisher_core.walk import Walk
from flows.grouping import Group, Groups
from flows.handing import Handing
from flows.workers import Threads
from tasks.job import Done
from tests.flows.sleeping import Sleep
from tests.flows.telling import Promise, Told


class Lasting:
    """A task that may go on, in a thread as a runner has it, and what it is given."""

    def __init__(self, tmp_path: Path, lasting: float = 60.0, places: int = 1, **run: Any) -> None:
        self.workers = Told()
        self.workers.places = places
        self.workers.lasting, self.workers.patience, self.workers.spread = lasting, math.inf, False
        self.store = Store(tmp_path / "lasting")
        self.handing = Handing(self.workers, self.store, WorkSettings(**run))  # type: ignore[arg-type]
        self.threads: list[threading.Thread] = []

    def group(self, *names: str, seconds: float = 0.01, error: Exception | None = None) -> Group:
        walk = Walk(graph_of([Sleep(name=name, error=error) for name in names]), self.store)
        batches = [walk.take() for _ in names]
        return Group(tuple(batch for batch in batches if batch is not None), seconds)

    def hand_over(self, group: Group) -> None:
        before = len(self.workers.promises)
        self.handing.hand_over(group)
        for place in range(before, len(self.workers.promises)):
            thread = threading.Thread(target=self._run, args=(place,), daemon=True)
            self.threads.append(thread)
            thread.start()

    def _run(self, place: int) -> None:
        promise = self.workers.promises[place]
        try:
            promise.future.set_result(self.workers.parameters[place]["work"]())
        except Exception as error:  # noqa: BLE001 - as a runner, it keeps whatever was raised.
            promise.future.set_exception(error)

    def join(self) -> None:
        for thread in self.threads:
            thread.join(timeout=10)
            assert not thread.is_alive()


def test_a_task_that_may_go_on_is_given_the_next_group(tmp_path: Path) -> None:
    lasting = Lasting(tmp_path)
    with lasting.handing as handing:
        for names in (["a"], ["b", "c"], ["d"]):
            group = lasting.group(*names)
            lasting.hand_over(group)
            batches, result = handing.wait()
            assert batches == group.batches
            assert isinstance(result, list)
            assert [done.artifacts is None for done in result] == [False] * len(names)
            assert handing.has_room
    lasting.join()
    assert len(lasting.workers.promises) == 1
    assert lasting.workers.promises[0].future.result() == []
    assert lasting.workers.parameters[0]["title"] == "a and others"


@pytest.mark.parametrize("seconds", [math.inf, 61.0])
def test_what_must_have_a_task_of_its_own_gets_one_in_the_place_of_one_that_waits(
    tmp_path: Path, seconds: float
) -> None:
    lasting = Lasting(tmp_path, retries=2)
    with lasting.handing as handing:
        lasting.hand_over(lasting.group("a"))
        handing.wait()
        alone = lasting.group("b", seconds=seconds)
        lasting.hand_over(alone)
        # The one that waited has ended, and the other has told of its group.
        found = [handing.wait()[0], handing.wait()[0]]
        assert sorted(found, key=len) == [(), alone.batches]
    lasting.join()
    assert [one["title"] for one in lasting.workers.parameters] == ["a and others", "b"]
    # A task that was given more must not begin anew.
    assert [task.retries for task in lasting.workers.tasks] == [0, 2]


def test_a_task_that_waits_is_kept_where_another_worker_is_free(tmp_path: Path) -> None:
    lasting = Lasting(tmp_path, places=2)
    with lasting.handing as handing:
        lasting.hand_over(lasting.group("a"))
        handing.wait()
        lasting.hand_over(lasting.group("b", seconds=math.inf))
        assert len(handing.wait()[0]) == 1
        lasting.hand_over(lasting.group("c"))
        assert len(handing.wait()[0]) == 1
    lasting.join()
    assert len(lasting.workers.promises) == 2


def test_of_tasks_that_wait_the_one_that_may_go_on_longest_is_given_the_next_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("flows.handing.time", SimpleNamespace(monotonic=lambda: now[0]))
    lasting = Lasting(tmp_path, lasting=60.0, places=2)
    with lasting.handing as handing:
        for name, moment in (("a", 0.0), ("b", 30.0), ("c", 31.0)):
            now[0] = moment
            # At 30 s, the first could not end this in time.
            lasting.hand_over(lasting.group(name, seconds=40.0))
            assert [batch.name for batch in handing.wait()[0]] == [name]
    lasting.join()
    assert [one["title"] for one in lasting.workers.parameters] == ["a and others", "b and others"]


def test_a_task_goes_on_for_half_of_its_time_out_at_most(tmp_path: Path) -> None:
    lasting = Lasting(tmp_path, timeout_seconds=2.0)
    with lasting.handing as handing:
        handing.hand_over(lasting.group("a", seconds=1.1))
    assert lasting.workers.parameters[0]["title"] == "a"


def test_a_task_that_waits_for_too_long_ends(tmp_path: Path) -> None:
    lasting = Lasting(tmp_path, lasting=0.2)
    with lasting.handing as handing:
        lasting.hand_over(lasting.group("a"))
        handing.wait()
        assert handing.wait() == ((), [])
        lasting.join()
        # What would last for longer than a task may starts another.
        lasting.hand_over(lasting.group("b"))
        handing.wait()
        lasting.hand_over(lasting.group("c", seconds=0.3))
    lasting.join()
    assert len(lasting.workers.promises) == 3


def test_what_fails_in_a_task_that_may_go_on_is_told_without_a_reason(tmp_path: Path) -> None:
    lasting = Lasting(tmp_path)
    with lasting.handing as handing:
        lasting.hand_over(lasting.group("a"))
        handing.wait()
        lasting.hand_over(lasting.group("b", error=ValueError("no")))
        ((failed,), result) = handing.wait()
        assert failed.name == "b"
        assert isinstance(result, list)
        assert [done.artifacts for done in result] == [None]
        # What has a task of its own has its error for itself.
        lasting.hand_over(lasting.group("c", seconds=math.inf, error=ValueError("no")))
        found = sorted([handing.wait(), handing.wait()], key=lambda one: len(one[0]))
        assert found[0] == ((), [])
        assert isinstance(found[1][1], JobError)
    lasting.join()


def test_a_task_that_is_stopped_leaves_its_batches_to_others(tmp_path: Path) -> None:
    lasting = Lasting(tmp_path)
    with lasting.handing as handing:
        first, second = lasting.group("a"), lasting.group("b", "c")
        handing.hand_over(first)
        following = lasting.workers.parameters[0]["work"].keywords["following"]
        told = threading.Thread(target=following, args=([Done([], 0.0)],), daemon=True)
        told.start()
        assert handing.wait() == (first.batches, [Done([], 0.0)])
        handing.hand_over(second)
        told.join()
        lasting.workers.promises[0].future.set_exception(TimeoutError("too long"))
        assert handing.wait() == (second.batches, [Done(None, 0.0)] * 2)


@pytest.mark.parametrize("heard", [True, False])
def test_tasks_that_are_under_way_at_the_end_are_told_to_end(tmp_path: Path, heard: bool) -> None:
    lasting = Lasting(tmp_path)
    with lasting.handing as handing:
        lasting.hand_over(lasting.group("a"))
        if heard:
            handing.wait()
    lasting.join()
    assert lasting.workers.promises[0].future.result() == []


def test_threads_have_few_tasks_for_many_short_jobs(tmp_path: Path) -> None:
    """Jobs of one pace, whose length is known when the first is done."""
    store, submitted = Store(tmp_path / "artifacts"), []
    workers = Threads(ThreadPoolTaskRunner(max_workers=2), 2)

    def submit(task: Task[..., Any], parameters: dict[str, Any], job: Job[Any], before: Any = None) -> Promise:
        promise = Promise()
        submitted.append(parameters["title"])
        threading.Thread(target=lambda: promise.future.set_result(parameters["work"]()), daemon=True).start()
        return promise

    workers.submit = submit  # type: ignore[method-assign, assignment]
    walk = Walk(graph_of([Sleep(name=f"sleep {number}") for number in range(50)]), store)
    groups = Groups(walk)
    with Handing(workers, store, WorkSettings()) as handing:
        while not walk.finished:
            while handing.has_room and (group := groups.take(2, longest=1e-9, least=0.0)):
                handing.hand_over(group)
            groups.settle(*handing.wait())
    assert set(walk.outcome.artifacts) == set(walk.graph)
    assert len(submitted) <= 4
