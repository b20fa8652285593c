"""How missing jobs become Prefect tasks, each submitted after those that it needs."""

import logging
import math
import multiprocessing
import queue
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from graphlib import TopologicalSorter
from typing import Any

from prefect.client.schemas.objects import TaskRunResult
from prefect.exceptions import TerminationSignal
from prefect.futures import PrefectFuture
from prefect.task_runners import ProcessPoolTaskRunner, TaskRunner, ThreadPoolTaskRunner

from fedfisher_core.engine.costs import usable_processors
from fedfisher_core.engine.errors import JobError
from fedfisher_core.engine.failures import Failure, JobsFailedError
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.performing import Transients
from fedfisher_core.engine.plan import Agenda, Outcome, groups_of
from fedfisher_core.engine.store import Store
from fedfisher_core.federation.federation import ClientJob, client_name
from fedfisher_core.settings import RunSettings, WorkSettings
from flows.progress import Progress
from flows.stopping import end_after
from flows.terminal import configure_logging
from tasks.common import limited
from tasks.computing import compute
from tasks.stages import compute_job

log = logging.getLogger("fedfisher")

_MANY_CLIENTS = 100
"""Up to this many clients of a federation, each client has a separate task for each step."""
_TASKS_A_WORKER = 4


@dataclass(frozen=True)
class TaskPlan:
    """What one task computes: groups of jobs, one group after another."""

    title: str
    groups: tuple[tuple[Job[Any], ...], ...]

    @property
    def first(self) -> Job[Any]:
        """The first job; all of a task's jobs are of one class."""
        return self.groups[0][0]

    @property
    def jobs(self) -> list[Job[Any]]:
        """All jobs of the task."""
        return [job for group in self.groups for job in group]


def plan_tasks(missing: Sequence[Job[Any]], run: WorkSettings, workers: int) -> list[TaskPlan]:
    """Decide which missing jobs share a task, for a number of workers; each task comes after those that it needs."""
    steps: dict[Any, list[tuple[Job[Any], ...]]] = {}
    for group in groups_of(missing):
        steps.setdefault(_step_of(group[0]), []).append(tuple(group))
    plans = []
    for groups in steps.values():
        size = run.clients_per_task
        if size is None:
            size = 1 if len(groups) <= _MANY_CLIENTS else math.ceil(len(groups) / (_TASKS_A_WORKER * workers))
        for begin in range(0, len(groups), size):
            own = tuple(groups[begin : begin + size])
            others = f" and {len(own) - 1} others" if len(own) > 1 else ""
            plans.append(TaskPlan(f"{own[0][0].title}{others}", own))
    return plans


def _step_of(job: Job[Any]) -> Any:
    """Return what the jobs of one step of a federation have in common; for any other job, its title."""
    if isinstance(job, ClientJob):
        return type(job), job.title.replace(f"{client_name(job.client)} of ", "", 1)
    return type(job), job.title


def submit_missing(agenda: Agenda, store: Store, transients: Transients, run: WorkSettings, *, name: str) -> Outcome:
    """Compute all missing jobs of an experiment in Prefect tasks.

    A task is submitted as soon as all that it needs is done, and Prefect draws arrows between tasks. A job that needs a
    failed job is not run; every other job is.
    """
    with closing(Progress(name=name, total=len(agenda.missing))) as progress, started(run) as runner:
        plans = plan_tasks(agenda.missing, run, runner.count)
        submission = _Submission(plans, store, run, runner)
        done = 0
        for plan, failures in submission.results():
            for failure in failures.values():
                log.error("%s: %s", failure.job, failure.reason)
            transients.done(job for job in plan.jobs if job.key not in submission.failed)
            transients.delete()
            done += len(plan.jobs)
            progress.advance_to(done)
    return agenda.outcome(store, submission.failures)


class Runner:
    """Prefect's task runner, for a block of code."""

    def __init__(self, runner: TaskRunner[Any], count: int) -> None:
        self._runner = runner
        self.count = count

    def __enter__(self) -> "Runner":
        self._stack = ExitStack()
        self._stack.enter_context(self._runner)
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt | TerminationSignal):
            # An interrupted run does not wait for tasks under way; the next run makes their results.
            for process in multiprocessing.active_children():
                process.kill()
        else:
            self._stack.__exit__(kind, *rest)

    def submit(self, task: Any, parameters: dict[str, Any], needs: Any, job: Job[Any]) -> PrefectFuture[Any]:
        """Submit a task whose first job is given; `needs` are the task runs before it, for Prefect's arrows."""
        return self._runner.submit(task, parameters=parameters, dependencies={"work": needs})

    def prepared(self, work: Callable[[], None], job: Job[Any]) -> Callable[[], None]:
        """Wrap work for workers on other machines."""
        return work

    def require_alive(self, error: Exception) -> None:
        """Check that tasks can still run; `OutputError` if they can't."""


class _Submission:
    """Tasks that are to be submitted, under way or done."""

    def __init__(self, plans: Sequence[TaskPlan], store: Store, run: WorkSettings, runner: Runner) -> None:
        self._store, self._run, self._runner = store, run, runner
        self._share_gpu = isinstance(run, RunSettings) and run.share_gpu
        self._plan_of = {job.key: number for number, plan in enumerate(plans) for job in plan.jobs}
        self._plans = plans
        self._needs = {number: self._needed(plan) for number, plan in enumerate(plans)}
        self._finished: queue.SimpleQueue[tuple[int, PrefectFuture[Any] | Exception | None]] = queue.SimpleQueue()
        self._task_runs: dict[int, Any] = {}
        self.failures: dict[str, Failure] = {}
        self.failed: set[str] = set()
        """Keys of jobs that failed, or that need one that failed."""

    def _needed(self, plan: TaskPlan) -> set[int]:
        keys = {one.key for job in plan.jobs for one in job.roles.values()}
        return {self._plan_of[key] for key in keys if key in self._plan_of}

    def results(self) -> Iterator[tuple[TaskPlan, Mapping[str, Failure]]]:
        """Submit each task when it is ready, and yield it when it has ended, with the failures of its jobs by name."""
        sorter = TopologicalSorter(self._needs)
        sorter.prepare()
        while sorter.is_active():
            for number in sorted(sorter.get_ready()):
                self._submit(number)
            number, future = self._finished.get()
            plan = self._plans[number]
            failures = {} if future is None else self._failures(plan, future)
            self.failures |= failures
            self.failed |= {job.key for job in plan.jobs if job.name in failures}
            yield plan, failures
            sorter.done(number)

    def _submit(self, number: int) -> None:
        plan = self._plans[number]
        for job in plan.jobs:
            if any(one.key in self.failed for one in job.roles.values()):
                self.failed.add(job.key)
        groups = [[job.detached() for job in group if job.key not in self.failed] for group in plan.groups]
        groups = [group for group in groups if group]
        if not groups:
            self._finished.put((number, None))
            return
        first = plan.first
        keys = {job.name: job.key for job in plan.jobs}
        # A task of several clients has as much time for each as a task of one.
        seconds = self._run.timeout_seconds * len(groups)
        work = partial(compute, groups, self._store, keys=keys, share_gpu=self._share_gpu, seconds=seconds)
        tags = [*first.tags, *(["gpu"] if first.numerics.device != "cpu" else [])]
        name = type(first).__name__
        task = limited(compute_job, self._run).with_options(name=name, tags=tags, timeout_seconds=seconds)
        # Prefect gets no arrow to a task that another arrow leads to already.
        led_to = {other for one in self._needs[number] for other in self._needs[one]}
        drawn = [one for one in self._needs[number] - led_to if one in self._task_runs]
        needs = {TaskRunResult(id=self._task_runs[one]) for one in drawn}
        parameters = {"title": plan.title, "work": self._runner.prepared(work, first)}
        try:
            future = self._runner.submit(task, parameters, needs, first)
        except Exception as error:  # noqa: BLE001 - it is the reason why the task's jobs are missing.
            self._finished.put((number, error))
            return
        self._task_runs[number] = future.task_run_id
        future.add_done_callback(lambda one: self._finished.put((number, one)))

    def _failures(self, plan: TaskPlan, future: PrefectFuture[Any] | Exception) -> dict[str, Failure]:
        """Return the failures of a task's jobs."""
        reason = future if isinstance(future, Exception) else _reason(future)
        if reason is None:
            return {}
        if isinstance(reason, JobsFailedError):
            return dict(reason.failures)
        self._runner.require_alive(reason)
        # The whole task was stopped; the results that it has stored are kept.
        left = [job for job in plan.jobs if job.key not in self.failed]
        made = {job.name for job in left if self._store.refer(job.kind, job.key) is not None}
        if isinstance(reason, TimeoutError):
            each = f"run.timeout_seconds={self._run.timeout_seconds:g}" + " for each client" * (len(plan.groups) > 1)
            trace = "".join(traceback.format_exception(reason))
            reason = JobError(f"the task took longer than {each}; allowed: more", trace)
        return {job.name: Failure.of(job.name, reason) for job in left if job.name not in made}


def _reason(future: PrefectFuture[Any]) -> Exception | None:
    """Return the error of a task; None where it succeeded."""
    try:
        result = future.result(raise_on_failure=False)
    except Exception as error:  # noqa: BLE001 - a runner that lost the task is a reason as well.
        return error
    if isinstance(result, BaseException):
        return result if isinstance(result, Exception) else RuntimeError(str(result))
    return None


def started(run: WorkSettings) -> Runner:
    """Return the runner of tasks, which starts and ends with a block."""
    count = run.workers or usable_processors()
    match run.runner:
        case "dask":
            from flows.dask_runner import DaskRunner

            return DaskRunner(run, count)
        case "processes":
            return Runner(ProcessPoolTaskRunner(max_workers=count, initializer=_start_process), count)
        case "threads":
            return Runner(ThreadPoolTaskRunner(max_workers=count), count)


def _start_process() -> None:
    """Make a process as quiet as the command, and end it when the command ends."""
    configure_logging()
    # Ctrl-C reaches all processes of a terminal; the command alone acts on it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if (parent := multiprocessing.parent_process()) is not None:
        end_after(parent.join)
