"""What becomes of a finished task whose worker dies with its result, and of a job that ends its workers."""

import os
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from prefect import Task
from prefect_dask.task_runners import PrefectDaskFuture

from fedfisher_core.batches import Batch
from fedfisher_core.jobs import NoInputs, graph_of
from fedfisher_core.settings import RunSettings, WorkSettings
from fedfisher_core.store import Content, Store
from fedfisher_core.walk import Walk
from flows.dask_workers import DaskWorkers
from flows.grouping import Groups
from flows.handing import Handing
from tasks.job import Done, do_alone
from tests.flows.sleeping import Sleep
from tests.servers import dask_scheduler, dask_worker, wait_for_workers

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Noted(Sleep):
    """A job that adds a line to a file whenever it is computed."""

    notes: str = ""

    def compute(self, inputs: NoInputs) -> Content:
        with Path(self.notes).open("a") as file:
            file.write("computed\n")
        return super().compute(inputs)


@dataclass(frozen=True)
class Deadly(Sleep):
    """A job that ends whatever computes it."""

    def compute(self, inputs: NoInputs) -> Content:
        os._exit(1)


class Bare:
    """Has Dask run the function of a task, without Prefect, which needs a server."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def submit(self, task: Task[..., Any], parameters: dict[str, Any]) -> PrefectDaskFuture[Any]:
        return PrefectDaskFuture(uuid.uuid4(), self.client.submit(task.fn, **parameters, pure=False))


def running(batch: Batch, store: Store) -> Callable[[], tuple[str, list[Done]]]:
    """A task that says where it ran."""

    def run() -> tuple[str, list[Done]]:
        from distributed import get_worker

        return get_worker().address, do_alone(batch, store)

    return run


def test_a_finished_task_runs_again_and_computes_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    store, notes = Store(tmp_path / "artifacts"), tmp_path / "notes"
    walk = Walk(graph_of([Noted(name="noted", notes=str(notes))]), store)
    batch = walk.take()
    assert batch is not None
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    with ExitStack() as stack:
        address = stack.enter_context(dask_scheduler(environment))
        client = stack.enter_context(Client(address, set_as_default=False))
        with dask_worker(address, environment, tmp_path / "first"):
            wait_for_workers(address, 1)
            (first,) = client.nthreads()
            finished = client.submit(running(batch, store), pure=False)
            client.gather(finished)
            made = store.find(batch.steps[0])
            stack.enter_context(dask_worker(address, environment, tmp_path / "second"))
            wait_for_workers(address, 2)
        where, (done,) = finished.result(timeout=60)
    assert where != first
    assert done.artifacts == [made]
    assert notes.read_text() == "computed\n"


def test_a_job_that_ends_every_worker_is_named_and_the_run_comes_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    store = Store(tmp_path / "artifacts")
    walk = Walk(graph_of([Deadly(name="deadly"), Sleep(name="sleep")]), store)
    groups, failures = Groups(walk), []
    with ExitStack() as stack:
        address = stack.enter_context(dask_scheduler(environment))
        stack.enter_context(dask_worker(address, environment, tmp_path))
        wait_for_workers(address, 1)
        client = stack.enter_context(Client(address, set_as_default=False))
        workers = DaskWorkers(RunSettings(runner="dask", dask={"scheduler": address}), 1)
        monkeypatch.setattr(workers, "_dask", Bare(client))
        handing = stack.enter_context(Handing(workers, store, WorkSettings()))
        while not walk.finished:
            while handing.has_room and (group := groups.take(workers.places, longest=8.0, least=0.2)):
                handing.hand_over(group)
            failures += groups.settle(*handing.wait())
    named = {failure.job: failure.reason for failure in failures}
    assert named.keys() == {"deadly"}
    assert "died" in named["deadly"]
    # Dask suspects what waited at the same worker too.
    assert walk.outcome.artifacts.keys() == {"sleep"}
