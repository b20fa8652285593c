"""Handing groups of batches over to what runs tasks, and getting each result once."""

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from prefect.futures import PrefectFuture

from fedfisher_core.batches import Batch
from fedfisher_core.errors import JobError, UnwritableError
from fedfisher_core.reporting.formats import plural
from fedfisher_core.settings import RunSettings, WorkSettings
from fedfisher_core.store import Store
from flows.grouping import Group
from flows.workers import Workers
from tasks.job import Done, do_alone, do_each, do_on, run_jobs
from tasks.options import limited

# What a job raised, or a disk that is full; or, where the project is missing or older, what kept it from being
# understood.
_OF_ONE_MACHINE = (JobError, UnwritableError, ImportError, AttributeError)
_MOST_STARTS = 3


_Reply = queue.SimpleQueue[tuple[Batch, ...]]


@dataclass
class _Handed:
    """What a task was given.

    Args:
        title: of the task.
        batches: that it computes; none while it waits for more, and when it has been told to end.
        ends: until when it may be given more, on the monotonic clock; None where it may not.
        late: when another task is started for it, on the monotonic clock.
        reply: where it waits for more; None while it computes.
        tasks: that are under way for it.
        started: how many tasks were started for it.
        last: of these.
        settled: whether one of them has its result.
        suspected: whether it has ended with its workers, and is to run, or runs, while nothing else does.
    """

    title: str
    batches: tuple[Batch, ...]
    ends: float | None
    late: float
    reply: _Reply | None = None
    tasks: int = 0
    started: int = 0
    last: PrefectFuture[Any] | None = None
    settled: bool = False
    suspected: bool = False


@dataclass(frozen=True)
class _Told:
    """What a task that may go on has said, from another thread.

    Args:
        handed: what it was given.
        done: what became of that, an entry for each batch.
        reply: where it waits for more.
    """

    handed: _Handed
    done: list[Done]
    reply: _Reply


class Handing:
    """The tasks under way.

    Where tasks may go on, one that has computed its group is given the next at once, and only this thread, which hands
    them out, touches the walk. A group that takes longer than that, or nobody knows how long, has a task of its own
    everywhere. Where such a task takes too long, its group is given to another worker as well, where that is wanted:
    the first result counts, and the store keeps either. One whose task fails on one of several machines is tried on
    another. One that has ended with its workers, maybe for what another did to them, is tried while nothing else runs.
    Where the block ends, tasks that may go on are told to end.

    Args:
        workers: run the tasks.
        store: keeps the results.
        run: how the work is carried out.
    """

    def __init__(self, workers: Workers, store: Store, run: WorkSettings) -> None:
        self._workers = workers
        self._store = store
        # What fails in company is tried again alone, with the retries that it may have.
        self._alone, self._together = limited(run_jobs, run), limited(run_jobs, run.model_copy(update={"retries": 0}))
        self._share_gpu = isinstance(run, RunSettings) and run.share_gpu
        # A task's time-out counts from its start, whatever it is given later.
        self._lasting = min(workers.lasting, run.timeout_seconds / 2)
        self._events: queue.SimpleQueue[PrefectFuture[Any] | _Told] = queue.SimpleQueue()
        self._running: dict[Any, _Handed] = {}
        self._suspects: deque[_Handed] = deque()
        # Tasks that wait for a reply must get one, whatever becomes of this thread.
        self._lock, self._closed = threading.Lock(), False
        self._open: set[_Reply] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        with self._lock:
            self._closed = True
            for reply in self._open:
                reply.put(())

    @property
    def has_room(self) -> bool:
        """Whether another group can be handed over."""
        return not self._suspects and self._busy < self._workers.places

    @property
    def _busy(self) -> int:
        """How many groups have no result yet; of a settled one, a straggler may still be under way."""
        return sum(bool(handed.batches) and not handed.settled for handed in self._running.values())

    def hand_over(self, group: Group) -> None:
        """Give a group to a task that waits for one, or start a task.

        Args:
            group: computed by one task, one batch after another.
        """
        now, idle = time.monotonic(), self._idle()
        if idle and now + group.seconds <= _end(idle[0]):
            return self._answer(idle[0], group.batches)
        if idle and self._busy + len(idle) >= self._workers.places:
            # Its worker is needed.
            self._answer(idle[-1], ())
        first, *others = group.batches
        if self._lasting and group.seconds <= self._lasting:
            handed = _Handed(f"{first.name} and others", group.batches, ends=now + self._lasting, late=math.inf)
        else:
            title = f"{first.name} and {plural(len(others), 'other')}" if others else first.name
            # Behind another it begins when that has ended, or is late itself.
            waits = self._busy >= self._workers.count
            handed = _Handed(title, group.batches, ends=None, late=now + self._workers.patience * (1 + waits))
        return self._start(handed)

    def wait(self) -> tuple[tuple[Batch, ...], list[Done] | Exception]:
        """Wait for what has become of a group.

        Returns:
            Its batches; and an entry for each batch, or why they have failed. No batches where a task has ended that
            was given nothing more, or whose group had its result before.

        Raises:
            InputError: what runs tasks is gone.
        """
        while True:
            for handed in self._idle():
                if self._suspects or _end(handed) <= time.monotonic():
                    self._answer(handed, ())
            if self._suspects and all(one.settled for one in self._running.values()):
                self._start(self._suspects[0])
            try:
                event = self._events.get(timeout=self._seconds_of_patience())
            except queue.Empty:
                self._start_late_again()
                continue
            if isinstance(event, _Told):
                handed = event.handed
                batches, handed.batches, handed.reply = handed.batches, (), event.reply
                return batches, event.done
            ended = self._ended(event)
            self._workers.forget(event)
            if ended is not None:
                return ended

    def _ended(self, future: PrefectFuture[Any]) -> tuple[tuple[Batch, ...], list[Done] | Exception] | None:
        """Say as `wait` does what has become of a group whose task has ended; None where another task may make it."""
        handed = self._running.pop(future.task_run_id)
        handed.tasks -= 1
        result = self._result(future)
        if not handed.batches:
            return (), []
        if handed.ends is not None:
            # Whatever has stopped it, each of them gets a task of its own.
            return handed.batches, [Done(None, 0.0)] * len(handed.batches)
        if isinstance(result, _OF_ONE_MACHINE) and handed.started == 1 and self._is_spread(handed):
            # The machine may be the reason. Its mistakes are quick, so that it would soon have all of the work.
            handed.late = time.monotonic() + self._workers.patience
            self._start(handed)
            return None
        if handed.settled:
            # There is room for another now.
            return (), []
        if isinstance(result, Exception) and handed.tasks:
            # As long as another task may still make it, nothing is lost; but that one may wait for ever.
            handed.late = time.monotonic() + self._workers.patience
            return None
        if handed.suspected:
            self._suspects.popleft()
        elif len(handed.batches) == 1 and self._workers.has_ended(result):
            handed.suspected, handed.late = True, math.inf
            self._suspects.append(handed)
            return None
        handed.settled = True
        return handed.batches, result

    def _idle(self) -> list[_Handed]:
        """Those whose tasks wait for more, the one that may go on longest first."""
        idle = [handed for handed in self._running.values() if handed.reply is not None]
        return sorted(idle, key=_end, reverse=True)

    def _answer(self, handed: _Handed, batches: tuple[Batch, ...]) -> None:
        assert handed.reply is not None
        reply, handed.reply = handed.reply, None
        handed.batches = batches
        reply.put(batches)

    def _tell(self, handed: _Handed, done: list[Done]) -> tuple[Batch, ...]:
        """Say what became of a group, in a thread that speaks for its task, and wait for the next."""
        reply: _Reply = queue.SimpleQueue()
        with self._lock:
            if self._closed:
                return ()
            self._open.add(reply)
            self._events.put(_Told(handed, done, reply))
        batches = reply.get()
        with self._lock:
            self._open.discard(reply)
        return batches

    def _start(self, handed: _Handed) -> None:
        first, *others = handed.batches
        work: Callable[..., list[Done]]
        if handed.ends is not None:
            following = self._workers.following(partial(self._tell, handed))
            work = partial(do_on, handed.batches, following=following)
        else:
            work = partial(do_each, handed.batches) if others else partial(do_alone, first)
        whole = partial(work, store=self._store, share_gpu=self._share_gpu)
        future = self._workers.submit(
            self._alone if handed.ends is None and not others else self._together,
            parameters={"title": handed.title, "work": self._workers.guarded(whole, first.jobs[0])},
            job=first.jobs[0],
            # Once: where all workers end that a task may go to, it waits for ever. What has ended its workers has none
            # left to keep away from.
            before=handed.last if handed.started == 1 and not handed.suspected else None,
        )
        handed.last = future
        handed.tasks += 1
        handed.started += 1
        self._running[future.task_run_id] = handed
        future.add_done_callback(self._events.put)

    def _is_spread(self, handed: _Handed) -> bool:
        return self._workers.is_spread(handed.batches[0].jobs[0])

    def _seconds_of_patience(self) -> float | None:
        """How long nothing is late and no task has waited for too long; None if nothing will be."""
        late = [one.late for one in self._running.values() if not one.settled]
        first = min([*late, *map(_end, self._idle())], default=math.inf)
        return None if first == math.inf else max(0.0, first - time.monotonic())

    def _start_late_again(self) -> None:
        """Start what is late once more elsewhere; and again, where that one can't run or is late by itself."""
        now = time.monotonic()
        for handed in {id(one): one for one in self._running.values()}.values():
            if handed.settled or handed.late > now:
                continue
            assert handed.last is not None
            handed.late = now + self._workers.patience
            if handed.started == 1 or handed.tasks == 1 or self._workers.is_stranded(handed.last):
                self._start(handed)
            if handed.started == _MOST_STARTS:
                handed.late = math.inf

    def _result(self, future: PrefectFuture[Any]) -> Any:
        """Get what a task has returned or raised, or why the runner could not have it run."""
        try:
            return future.result(raise_on_failure=False)
        except Exception as error:  # noqa: BLE001 - whatever keeps a runner from a task is why its jobs are missing.
            self._workers.require_there(error)
            return error


def _end(handed: _Handed) -> float:
    assert handed.ends is not None
    return handed.ends
