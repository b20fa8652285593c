"""What becomes of a finished task whose worker dies with its result."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from distributed import Client

from fedfisher_core.batches import Batch
from fedfisher_core.jobs import NoInputs, graph_of
from fedfisher_core.store import Content, Store
from fedfisher_core.walk import Walk
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
