"""Processes of this machine that run tasks, which end with the run whatever ends it."""

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import count as numbers_from
from multiprocessing.connection import Connection
from multiprocessing.queues import SimpleQueue
from typing import Any

from prefect.task_runners import ProcessPoolTaskRunner

from fedfisher_core.batches import Batch
from flows.console import configure_logging
from flows.streams import Receiver, Sender
from flows.workers import NEAR, Following, Workers
from tasks.job import Done

log = logging.getLogger("fedfisher")

_pipe: Connection | None = None
"""Where a process of the pool asks what is next; none where the answer would be another's."""


class Processes(Workers):
    """Processes of this machine: a task asks the command's process for one small group after another.

    Each process inherits a pipe of its own, as nobody knows beforehand where a task will run.

    Args:
        count: how many there are.
    """

    longest, least, lasting = NEAR

    def __init__(self, count: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipes = [spawn.Pipe() for _ in range(count)]
        places = spawn.SimpleQueue()
        for place in range(count):
            places.put(place)
        ends = [theirs for _, theirs in self._pipes]
        super().__init__(
            ProcessPoolTaskRunner(max_workers=count, initializer=_start_process, initargs=(places, ends)), count
        )
        self._numbers = numbers_from()
        self._answers: dict[int, Following] = {}

    def __enter__(self) -> "Processes":
        super().__enter__()
        for own, _ in self._pipes:
            threading.Thread(target=self._answer, args=(own,), name="answer a process", daemon=True).start()
        return self

    def __exit__(self, *reason: Any) -> None:
        super().__exit__(*reason)
        # The processes have ended: with the last of these ends, the threads that answer have nothing to wait for.
        for _, theirs in self._pipes:
            theirs.close()

    def following(self, answer: Following) -> Following:
        """See `Workers.following`; what a task asks is answered in a thread of this process."""
        number = next(self._numbers)
        self._answers[number] = answer
        return _Asking(number)

    def _answer(self, connection: Connection) -> None:
        """Answer what tasks of one process ask, one task after another, until it has ended."""
        task, sender = -1, Sender()
        with connection, suppress(EOFError, OSError):
            while True:
                number, done = connection.recv()
                if number != task:
                    self._answers.pop(task, None)
                    task, sender = number, Sender()
                batches = self._answers[number](done)
                try:
                    data = sender.packed(batches)
                except Exception as error:  # noqa: BLE001 - of these each gets a task of its own, which Prefect sends.
                    log.debug("%s: %s", batches[0].name, error)
                    data = Sender().packed(())
                connection.send_bytes(data)


class _Asking:
    """Asks the command's process what is next, from one of the pool.

    Args:
        number: of the task.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._receiver: Receiver | None = None

    def __call__(self, done: list[Done]) -> Sequence[Batch]:
        global _pipe
        if _pipe is None:
            return ()
        if self._receiver is None:
            self._receiver = Receiver()
        # A task that is stopped while it waits leaves an answer behind, which is not the next one's: that ends after
        # its first group, and what nobody has told of is found in the store.
        pipe, _pipe = _pipe, None
        pipe.send((self._number, done))
        batches: Sequence[Batch] = self._receiver.unpacked(pipe.recv_bytes())
        _pipe = pipe
        return batches


def _start_process(places: "SimpleQueue[int]", ends: Sequence[Connection]) -> None:
    """Make a process as quiet as the command, give it its pipe, and end it when the command ends."""
    global _pipe
    configure_logging()
    # Ctrl-C reaches all processes of a terminal; the command decides what becomes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="end with parent", daemon=True).start()
    _pipe = ends[places.get()]


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
