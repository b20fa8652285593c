"""Workers whose tasks end when a test says so."""

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from prefect import Task

from fedfisher_core.errors import InputError
from fedfisher_core.jobs import Job


class Promise:
    """What a runner gives for a task."""

    def __init__(self) -> None:
        self.task_run_id = uuid.uuid4()
        self.future: Future[Any] = Future()

    def result(self, raise_on_failure: bool) -> Any:
        return self.future.result()

    def add_done_callback(self, call: Callable[["Promise"], None]) -> None:
        self.future.add_done_callback(lambda _: call(self))


class Told:
    """Workers whose tasks end when the test says so."""

    lasting = 0.0
    patience = 0.05
    places = 2
    count = 2
    """How many groups are under way at once."""

    def __init__(self) -> None:
        self.promises: list[Promise] = []
        self.before: list[Promise | None] = []
        self.parameters: list[dict[str, Any]] = []
        self.tasks: list[Task[..., Any]] = []
        self.submitted = threading.Condition()
        self.forgotten: list[Promise] = []
        self.gone = False
        self.spread = True
        self.stranded = False
        self.deadly: list[Exception] = []

    def submit(
        self, task: Task[..., Any], parameters: dict[str, Any], job: Job[Any], before: Promise | None = None
    ) -> Promise:
        # Nobody would know any more where that one ran.
        assert before not in self.forgotten
        with self.submitted:
            self.tasks.append(task)
            self.before.append(before)
            self.parameters.append(parameters)
            self.promises.append(Promise())
            self.submitted.notify()
        return self.promises[-1]

    def forget(self, future: Promise) -> None:
        assert future not in self.forgotten
        self.forgotten.append(future)

    def guarded(self, work: Callable[[], Any], job: Job[Any]) -> Callable[[], Any]:
        return work

    def following(self, answer: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        return answer

    def is_spread(self, job: Job[Any]) -> bool:
        return self.spread

    def is_stranded(self, future: Promise) -> bool:
        return self.stranded

    def has_ended(self, result: object) -> bool:
        return result in self.deadly

    def require_there(self, error: Exception) -> None:
        if self.gone:
            raise InputError("all are gone")

    def wait_for(self, count: int) -> None:
        with self.submitted:
            assert self.submitted.wait_for(lambda: len(self.promises) >= count, timeout=10)
