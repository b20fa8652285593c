"""On which workers of a real Dask cluster tasks are started, and started a second time."""

import gc
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from distributed import Client
from prefect_dask.task_runners import PrefectDaskFuture

from fedfisher_core.jobs import Numerics
from fedfisher_core.settings import RunSettings
from flows.dask_workers import DaskWorkers, _Runner
from flows.packed import Packed
from tasks.job import run_jobs
from tests.flows.sleeping import Sleep
from tests.servers import added_worker, dask_scheduler, dask_worker, wait_for_workers

JOB = Sleep(name="sleep")


@dataclass(frozen=True)
class Reading(Sleep):
    """A job that reads more than the store."""

    reads_sources: ClassVar[bool] = True


class Runner:
    """What hands functions over to Dask as Prefect's runner hands over tasks, which need a server."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def submit(self, function: Callable[..., Any], parameters: dict[str, Any]) -> PrefectDaskFuture[Any]:
        return PrefectDaskFuture(uuid.uuid4(), self.client.submit(function, **parameters, pure=False))


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A scheduler with two workers."""
    with ExitStack() as stack:
        address = stack.enter_context(dask_scheduler(os.environ))
        for name in ("one", "two"):
            stack.enter_context(dask_worker(address, os.environ, tmp_path_factory.mktemp(name)))
        wait_for_workers(address, 2)
        yield address


@pytest.fixture
def workers(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[DaskWorkers]:
    found = DaskWorkers(RunSettings(runner="dask", dask={"scheduler": scheduler}), 1)
    with Client(scheduler, set_as_default=False) as client:
        monkeypatch.setattr(found, "_dask", Runner(client))
        yield found


def submit(
    workers: DaskWorkers,
    path: Path | None = None,
    before: PrefectDaskFuture[Any] | None = None,
    job: Sleep = JOB,
) -> PrefectDaskFuture[Any]:
    """Start a task that waits for a file, and returns where it ran."""

    # Dask sends a function that no module has as it is.
    def run(awaited: str) -> str:
        from distributed import get_worker

        while awaited and not os.path.exists(awaited):
            time.sleep(0.05)
        return get_worker().address

    parameters = {"awaited": str(path) if path else ""}
    return workers.submit(run, parameters, job, before)  # type: ignore[arg-type, return-value]


def running_at(client: Client, task: PrefectDaskFuture[Any]) -> str:
    """The worker that has a task, once the scheduler has given it to one."""
    while not (found := [one for one, keys in client.processing().items() if task.wrapped_future.key in keys]):
        time.sleep(0.02)
    return str(found[0])


def test_what_is_late_is_started_on_another_worker_than_the_one_that_hangs(
    workers: DaskWorkers, tmp_path: Path
) -> None:
    client = workers._dask.client
    hung = submit(workers, tmp_path / "end")
    try:
        where = running_at(client, hung)
        # So much for the other one that Dask by itself would prefer the one that hangs.
        (other,) = client.nthreads().keys() - {where}
        naps = [client.submit(time.sleep, 0.5, workers=[other], pure=False) for _ in range(4)]
        again = submit(workers, before=hung)
        assert running_at(client, again) == other
        assert again.result(timeout=20) == other
        client.gather(naps)
    finally:
        (tmp_path / "end").touch()


def test_what_has_been_done_somewhere_is_done_elsewhere(workers: DaskWorkers) -> None:
    first = submit(workers)
    where = first.result(timeout=20)
    again = [submit(workers, before=first) for _ in range(6)]
    assert where not in {one.result(timeout=20) for one in again}


def test_what_is_to_run_elsewhere_is_not_taken_by_the_idle_worker_that_failed(
    workers: DaskWorkers,
) -> None:
    client = workers._dask.client
    first = submit(workers)
    where = first.result(timeout=20)
    (other,) = client.nthreads().keys() - {where}
    # Dask gives what waits at a busy worker to an idle one, once it has seen how long such tasks take.
    busy = [client.submit(time.sleep, 0.4, workers=[other], pure=False) for _ in range(4)]
    again = [submit(workers, before=first) for _ in range(4)]
    assert {one.result(timeout=20) for one in again} == {other}
    client.gather(busy)


def test_what_was_kept_for_a_worker_that_has_gone_is_stranded(
    workers: DaskWorkers, scheduler: str, tmp_path: Path
) -> None:
    client, end = workers._dask.client, tmp_path / "end"
    with added_worker(scheduler, os.environ, tmp_path):
        waiting = [submit(workers, end) for _ in range(3)]
        places = {one: running_at(client, one) for one in waiting}
        again = submit(workers, before=waiting[0])
        assert not workers.is_stranded(again)
        assert not workers.is_stranded(waiting[0])
        kept_for = workers._kept_for[again.wrapped_future.key]
        assert kept_for == frozenset(places.values()) - {places[waiting[0]]}
    end.touch()
    workers._kept_for[again.wrapped_future.key] = kept_for - client.nthreads().keys()
    assert workers.is_stranded(again)


def test_a_scheduler_has_nothing_left_of_what_is_forgotten(workers: DaskWorkers) -> None:
    client, done = workers._dask.client, submit(workers)
    key = done.wrapped_future.key
    # Whoever is told when it ends is held by it, and it by the task.
    done.add_done_callback(lambda one: None)
    done.result(timeout=20)

    def is_held() -> bool:
        return bool(client.run_on_scheduler(lambda dask_scheduler: key in dask_scheduler.tasks))

    gc.disable()
    try:
        assert is_held()
        workers.forget(done)
        deadline = time.monotonic() + 10
        while is_held() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not is_held()
    finally:
        gc.enable()


class Counted:
    """Knows how often it was pickled."""

    times = 0

    def __reduce__(self) -> tuple[type, tuple[()]]:
        Counted.times += 1
        return Counted, ()


def test_what_a_task_is_given_is_pickled_once() -> None:
    # No worker shall do it.
    with dask_scheduler(os.environ) as scheduler, _Runner(address=scheduler) as runner:
        handed = [runner.submit(run_jobs, {"title": "one", "work": Counted()}) for _ in range(2)]
        assert len({one.wrapped_future.key for one in handed}) == 2
        assert Counted.times <= 2


def test_what_only_this_machine_can_read_is_done_nowhere_else(workers: DaskWorkers) -> None:
    assert workers.is_spread(JOB)
    assert not workers.is_spread(Reading(name="read"))
    assert not DaskWorkers(RunSettings(runner="dask"), 1).is_spread(JOB)


def test_what_computes_on_a_gpu_waits_for_the_worker_that_has_one(
    workers: DaskWorkers, scheduler: str, tmp_path: Path
) -> None:
    client, end = workers._dask.client, tmp_path / "end"
    others = set(client.nthreads())
    job = Sleep(name="sleep", numerics=Numerics(device="cuda"))
    with added_worker(scheduler, os.environ, tmp_path, "--resources", "GPU=1") as gpu:
        first, second = (submit(workers, end, job=job) for _ in range(2))
        try:
            assert running_at(client, first) == gpu
            # Workers without a GPU are free meanwhile, and have all else.
            assert submit(workers).result(timeout=20) in others
            assert client.call_stack([second.wrapped_future]) == {}
        finally:
            end.touch()
        assert {one.result(timeout=20) for one in (first, second)} == {gpu}


def test_a_worker_that_comes_later_has_its_part(workers: DaskWorkers, scheduler: str, tmp_path: Path) -> None:
    client, end = workers._dask.client, tmp_path / "end"
    before = set(client.nthreads())
    waiting = [submit(workers, end) for _ in before]
    try:
        assert {running_at(client, one) for one in waiting} == before
        with added_worker(scheduler, os.environ, tmp_path):
            assert workers.places == 6
            assert submit(workers).result(timeout=20) not in before
    finally:
        end.touch()
    assert {one.result(timeout=20) for one in waiting} == before


def test_the_only_worker_is_asked_again(workers: DaskWorkers, monkeypatch: pytest.MonkeyPatch) -> None:
    first = submit(workers)
    where = first.result(timeout=20)
    client = workers._dask.client
    running = {where: ()}
    monkeypatch.setattr(client, "processing", lambda: running)
    assert workers._elsewhere(first) == frozenset()
    assert submit(workers, before=first).result(timeout=20)


def test_work_for_dask_is_packed_and_work_for_this_machine_is_not(workers: DaskWorkers) -> None:
    work = partial(int, "7")
    packed = workers.guarded(work, JOB)
    assert isinstance(packed, Packed)
    assert packed() == 7
    assert workers.guarded(work, Reading(name="reading")) is work
