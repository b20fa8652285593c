"""Tasks under way: each group's result is got once, and one that is late is started again elsewhere."""

import math
import tempfile
import threading
import time
from pathlib import Path

import pytest

from fedfisher_core.batches import Batch
from fedfisher_core.errors import InputError, JobError, UnwritableError
from fedfisher_core.jobs import Numerics, graph_of
from fedfisher_core.locks import LockedError
from fedfisher_core.settings import RunSettings, WorkSettings
from fedfisher_core.store import Store
from fedfisher_core.walk import Walk
from flows.grouping import Group
from flows.handing import Handing
from tasks.gpu import gpu_slot
from tests.flows.sleeping import Sleep
from tests.flows.telling import Told


@pytest.fixture
def workers() -> Told:
    return Told()


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    batch = Walk(graph_of([Sleep(name="sleep")]), Store(tmp_path / "artifacts")).take()
    assert batch is not None
    return batch


@pytest.fixture
def group(batch: Batch) -> Group:
    return Group((batch,), math.inf)


@pytest.fixture
def handing(workers: Told, tmp_path: Path) -> Handing:
    return Handing(workers, Store(tmp_path / "artifacts"), WorkSettings())  # type: ignore[arg-type]


def test_what_fails_is_told(handing: Handing, workers: Told, batch: Batch, group: Group) -> None:
    handing.hand_over(group)
    error = ValueError("no")
    workers.promises[0].future.set_exception(error)
    assert handing.wait() == ((batch,), error)


def test_each_task_that_has_ended_is_let_go_of(handing: Handing, workers: Told, batch: Batch, group: Group) -> None:
    # A busy machine shall not make a straggler of it.
    workers.patience = 60.0
    handing.hand_over(group)
    workers.promises[0].future.set_exception(JobError("broken disk", ""))
    # It is tried on another machine, which must not be the one that failed.
    ended = threading.Thread(target=handing.wait, daemon=True)
    ended.start()
    workers.wait_for(2)
    workers.promises[1].future.set_result("done")
    ended.join(timeout=10)
    assert workers.forgotten == workers.promises


def test_there_is_room_for_as_many_as_there_are_places(
    handing: Handing, workers: Told, batch: Batch, group: Group
) -> None:
    handing.hand_over(group)
    assert handing.has_room
    handing.hand_over(group)
    assert not handing.has_room
    workers.promises[1].future.set_result("done")
    handing.wait()
    assert handing.has_room


def test_what_is_late_is_started_again_once_and_the_first_result_counts(
    handing: Handing, workers: Told, batch: Batch, group: Group
) -> None:
    handing.hand_over(group)
    ended = threading.Thread(target=lambda: (workers.wait_for(2), workers.promises[1].future.set_result("second")))
    ended.start()
    assert handing.wait() == ((batch,), "second")
    ended.join()
    # The straggler's own result is of no interest any more, and neither is what it fails with.
    handing.hand_over(group)
    workers.promises[0].future.set_exception(ValueError("too late"))
    workers.promises[2].future.set_result("third")
    assert handing.wait() == ((), [])
    assert handing.wait() == ((batch,), "third")
    assert len(workers.promises) == 3
    assert workers.before == [None, workers.promises[0], None]


def test_stragglers_whose_groups_have_their_results_leave_room_for_others(
    handing: Handing, workers: Told, batch: Batch, group: Group
) -> None:
    for _ in range(2):
        handing.hand_over(group)
    ended = threading.Thread(
        target=lambda: (
            workers.wait_for(4),
            [workers.promises[place].future.set_result("again") for place in (2, 3)],
        )
    )
    ended.start()
    assert [handing.wait() for _ in range(2)] == [((batch,), "again")] * 2
    ended.join()
    assert handing.has_room
    # Whoever waits is told when a straggler has ended, as there is room for more then.
    workers.promises[0].future.set_result("at last")
    assert handing.wait() == ((), [])
    handing.hand_over(group)
    handing.hand_over(group)
    assert not handing.has_room


def test_what_waits_behind_another_is_late_when_that_is(
    handing: Handing, workers: Told, batch: Batch, group: Group
) -> None:
    workers.count, workers.patience = 1, 0.3
    begun = time.monotonic()
    for _ in range(2):
        handing.hand_over(group)

    def end() -> None:
        workers.wait_for(3)
        workers.promises[2].future.set_result("the first")
        workers.wait_for(4)
        workers.promises[3].future.set_result("the second")

    ended = threading.Thread(target=end)
    ended.start()
    assert handing.wait() == ((batch,), "the first")
    assert handing.wait() == ((batch,), "the second")
    ended.join()
    assert time.monotonic() - begun >= 0.6
    assert workers.before == [None, None, *workers.promises[:2]]


def test_what_was_kept_for_workers_that_are_gone_is_started_anywhere(
    handing: Handing, workers: Told, batch: Batch, group: Group
) -> None:
    workers.stranded = True
    handing.hand_over(group)
    ended = threading.Thread(target=lambda: (workers.wait_for(3), workers.promises[2].future.set_result("done")))
    ended.start()
    assert handing.wait() == ((batch,), "done")
    ended.join()
    assert workers.before == [None, workers.promises[0], None]


def test_a_full_disk_is_of_one_machine(handing: Handing, workers: Told, batch: Batch, group: Group) -> None:
    workers.patience = 600
    handing.hand_over(group)
    workers.promises[0].future.set_exception(UnwritableError("the disk is full"))
    ended = threading.Thread(target=lambda: (workers.wait_for(2), workers.promises[1].future.set_result("done")))
    ended.start()
    assert handing.wait() == ((batch,), "done")
    ended.join()
    assert workers.before == [None, workers.promises[0]]


def test_what_fails_by_itself_is_tried_on_another_machine_once(
    handing: Handing, workers: Told, batch: Batch, group: Group
) -> None:
    workers.patience = 600
    handing.hand_over(group)
    workers.promises[0].future.set_exception(JobError("no disk", "trace"))
    ended = threading.Thread(target=lambda: (workers.wait_for(2), workers.promises[1].future.set_result("done")))
    ended.start()
    assert handing.wait() == ((batch,), "done")
    ended.join()
    assert workers.before == [None, workers.promises[0]]


def test_what_is_late_on_another_machine_too_is_started_once_more(
    handing: Handing, workers: Told, batch: Batch, group: Group
) -> None:
    handing.hand_over(group)
    workers.promises[0].future.set_exception(JobError("no disk", "trace"))
    ended = threading.Thread(target=lambda: (workers.wait_for(3), workers.promises[2].future.set_result("done")))
    ended.start()
    assert handing.wait() == ((batch,), "done")
    ended.join()
    assert workers.before == [None, workers.promises[0], None]


def test_what_fails_on_another_machine_as_well_is_told(
    handing: Handing, workers: Told, batch: Batch, group: Group
) -> None:
    handing.hand_over(group)
    error = JobError("a mistake", "trace")
    workers.promises[0].future.set_exception(JobError("no disk", "trace"))
    ended = threading.Thread(target=lambda: (workers.wait_for(2), workers.promises[1].future.set_exception(error)))
    ended.start()
    assert handing.wait() == ((batch,), error)
    ended.join()
    assert len(workers.promises) == 2


def test_what_settings_explain_is_told_at_once(handing: Handing, workers: Told, batch: Batch, group: Group) -> None:
    handing.hand_over(group)
    error = InputError("other settings")
    workers.promises[0].future.set_exception(error)
    assert handing.wait() == ((batch,), error)
    assert len(workers.promises) == 1


def test_what_fails_on_the_only_machine_is_told(handing: Handing, workers: Told, batch: Batch, group: Group) -> None:
    workers.spread = False
    handing.hand_over(group)
    error = JobError("no disk", "trace")
    workers.promises[0].future.set_exception(error)
    assert handing.wait() == ((batch,), error)
    assert len(workers.promises) == 1


def test_a_failure_counts_only_when_no_other_task_is_under_way(
    handing: Handing, workers: Told, batch: Batch, group: Group
) -> None:
    handing.hand_over(group)

    def end() -> None:
        workers.wait_for(2)
        workers.promises[0].future.set_exception(ValueError("the first"))
        workers.promises[1].future.set_result("done")

    ended = threading.Thread(target=end)
    ended.start()
    assert handing.wait() == ((batch,), "done")
    ended.join()


def test_what_ends_with_its_workers_is_tried_once_more_while_nothing_else_runs(
    handing: Handing, workers: Told, batch: Batch, group: Group
) -> None:
    workers.patience = 600
    workers.deadly = ends = [RuntimeError("its worker died") for _ in range(3)]
    handing.hand_over(group)
    handing.hand_over(group)
    workers.promises[0].future.set_exception(ends[0])

    def end() -> None:
        workers.promises[1].future.set_exception(ends[1])
        workers.wait_for(3)
        # The second waits for the first.
        assert len(workers.promises) == 3
        assert not handing.has_room
        workers.promises[2].future.set_result("harmless")

    ended = threading.Thread(target=end)
    ended.start()
    assert handing.wait() == ((batch,), "harmless")
    ended.join()
    ended = threading.Thread(target=lambda: (workers.wait_for(4), workers.promises[3].future.set_exception(ends[2])))
    ended.start()
    assert handing.wait() == ((batch,), ends[2])
    ended.join()
    assert handing.has_room
    # None of the workers that it has ended is left to keep away from.
    assert workers.before == [None] * 4


def test_what_waits_for_ever_on_another_worker_is_started_where_there_is_one(
    handing: Handing, workers: Told, batch: Batch, group: Group
) -> None:
    handing.hand_over(group)

    def end() -> None:
        workers.wait_for(2)
        workers.promises[0].future.set_exception(ValueError("too slow"))
        workers.wait_for(3)
        workers.promises[2].future.set_result("done")

    ended = threading.Thread(target=end)
    ended.start()
    assert handing.wait() == ((batch,), "done")
    ended.join()
    assert workers.before == [None, workers.promises[0], None]


def test_workers_that_are_gone_are_told_of_by_name(handing: Handing, workers: Told, batch: Batch, group: Group) -> None:
    handing.hand_over(group)
    workers.gone = True
    workers.promises[0].future.set_exception(ConnectionError("lost"))
    with pytest.raises(InputError, match="all are gone"):
        handing.wait()


@pytest.mark.parametrize("share", [True, False])
def test_tasks_compute_on_a_gpu_that_others_share_only_where_they_share_it(
    workers: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: bool
) -> None:
    # The machine needs no GPU, since a slot only has a name.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("tasks.options._current_gpu", lambda: "one")
    monkeypatch.setattr("tasks.options._WAITING_SHARE", 0)
    store = Store(tmp_path / "artifacts")
    batch = Walk(graph_of([Sleep(name="sleep", numerics=Numerics(device="cuda"))]), store).take()
    assert batch is not None
    Handing(workers, store, RunSettings(share_gpu=share)).hand_over(Group((batch,), math.inf))  # type: ignore[arg-type]
    (parameters,) = workers.parameters
    with gpu_slot("one", shared=True, timeout=0):
        if share:
            ((artifact,),) = (done.artifacts for done in parameters["work"]())
            assert artifact.kind == "sleeps"
        else:
            with pytest.raises(LockedError):
                parameters["work"]()


def test_of_several_that_end_with_their_workers_each_is_tried_by_itself(
    handing: Handing, workers: Told, batch: Batch
) -> None:
    workers.patience = 600
    error = RuntimeError("its worker died")
    workers.deadly = [error]
    handing.hand_over(Group((batch, batch), 1.0))
    workers.promises[0].future.set_exception(error)
    told: list[object] = []
    waiting = threading.Thread(target=lambda: told.append(handing.wait()), daemon=True)
    waiting.start()
    waiting.join(timeout=10)
    assert told == [((batch, batch), error)]
    assert handing.has_room
