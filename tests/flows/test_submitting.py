"""Which jobs share a task, in which order tasks are submitted, and what becomes of what fails."""

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.engine.job import Job
from fedfisher_core.engine.performing import Transients
from fedfisher_core.engine.plan import Outcome, agenda_of
from fedfisher_core.engine.store import Store
from fedfisher_core.federation.federation import DataInputs
from fedfisher_core.settings import WorkSettings
from flows import submitting
from flows.submitting import Runner, TaskPlan, plan_tasks, submit_missing
from flows.work import prepare
from tests.flows.sleeping import Sleep
from tests.tiny import tiny_settings


class Promise:
    """A future as Prefect has it."""

    def __init__(self) -> None:
        self.task_run_id = uuid.uuid4()
        self.future: Future[None] = Future()

    def add_done_callback(self, told: Callable[["Promise"], None]) -> None:
        self.future.add_done_callback(lambda _: told(self))

    def result(self, *, raise_on_failure: bool) -> Any:
        assert not raise_on_failure
        return self.future.exception() or self.future.result()


class Threads(Runner):
    """Does the work of tasks in threads, and notes what it was given; it needs no server."""

    count = 2

    def __init__(self) -> None:
        self.titles: list[str] = []
        self.arrows: dict[str, set[str]] = {}
        self.tags: dict[str, set[str]] = {}
        self._title_of: dict[Any, str] = {}

    def __enter__(self) -> "Threads":
        return self

    def __exit__(self, *reason: Any) -> None:
        pass

    def submit(self, task: Any, parameters: dict[str, Any], needs: Any, job: Job[Any]) -> Any:
        promise, title = Promise(), parameters["title"]
        self.titles.append(title)
        self.tags[title] = set(task.tags)
        self.arrows[title] = {self._title_of[one.id] for one in needs}
        self._title_of[promise.task_run_id] = title

        def work() -> None:
            try:
                promise.future.set_result(parameters["work"]())
            except Exception as error:  # noqa: BLE001 - as a runner, it keeps any exception.
                promise.future.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return promise


@dataclass(frozen=True)
class After(Sleep):
    """A job that needs another."""

    def compute(self, inputs: Any) -> Any:
        return super().compute(inputs)


class Quiet:
    def __init__(self, **_: Any) -> None:
        self.done = 0

    def close(self) -> None:
        pass

    def advance_to(self, done: int) -> None:
        assert done > self.done
        self.done = done


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Threads:
    runner = Threads()
    monkeypatch.setattr(submitting, "started", lambda run: runner)
    monkeypatch.setattr(submitting, "Progress", Quiet)
    return runner


def submitted(jobs: list[Job[Any]], store: Store) -> Outcome:
    with store.used_by_run("test") as run:
        agenda = agenda_of(jobs, store)
        return submit_missing(agenda, store, Transients(agenda, store, run), WorkSettings(), name="test")


def after(name: str, needed: Job[Any], **changes: Any) -> After:
    return After(name=name, needs=DataInputs(needed), **changes)


def test_tasks_come_after_those_that_they_need_and_arrows_skip_none(runner: Threads, tmp_path: Path) -> None:
    first = Sleep(name="first")
    second = after("second", first)
    third = After(name="third", needs=[DataInputs(second), DataInputs(first)])
    outcome = submitted([third, Sleep(name="alone")], Store(tmp_path))
    assert set(outcome.artifacts) == {"first", "second", "third", "alone"}
    assert runner.titles.index("first") < runner.titles.index("second") < runner.titles.index("third")
    # What another arrow leads to needs none of its own.
    assert runner.arrows == {"first": set(), "second": {"first"}, "third": {"second"}, "alone": set()}
    assert submitted([third], Store(tmp_path)).artifacts.keys() == {"third"}
    assert len(runner.titles) == 4


def test_what_needs_a_failed_job_is_not_run_and_everything_else_is(runner: Threads, tmp_path: Path) -> None:
    bad = Sleep(name="bad", error=ValueError("no"))
    lost = after("lost twice", after("lost", bad))
    outcome = submitted([lost, after("kept", Sleep(name="good"))], Store(tmp_path))
    assert set(outcome.artifacts) == {"good", "kept"}
    assert {name: one.job for name, one in outcome.failed.items()} == dict.fromkeys(
        ("bad", "lost", "lost twice"), "bad"
    )
    assert outcome.failed["bad"].reason == "ValueError: no"
    assert set(runner.titles) == {"bad", "good", "kept"}


def test_of_a_task_whose_jobs_fail_in_part_what_needs_the_others_is_run(runner: Threads, tmp_path: Path) -> None:
    bad, good = Sleep(name="bad", error=ValueError("no"), task="both"), Sleep(name="good", task="both")
    needs = [after("after bad", bad, task="after both"), after("after good", good, task="after both")]
    outcome = submitted([*needs], Store(tmp_path))
    assert set(outcome.artifacts) == {"good", "after good"}
    assert set(outcome.failed) == {"bad", "after bad"}
    assert runner.titles == ["both", "after both"]


def test_a_runner_that_loses_a_task_costs_what_it_had_not_made(
    runner: Threads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(groups: Any, store: Store, **_: Any) -> None:
        store.write(groups[0][0].recipe, groups[0][0].compute(None))
        raise RuntimeError("the worker is gone")

    monkeypatch.setattr(submitting, "compute", lose)
    jobs = [Sleep(name=name, task="all") for name in ("one", "two")]
    outcome = submitted([*jobs], Store(tmp_path))
    assert set(outcome.artifacts) == {"one"}
    assert outcome.failed["two"].reason == "RuntimeError: the worker is gone"


def test_a_time_out_names_its_setting(runner: Threads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(*_: Any, **__: Any) -> None:
        raise TimeoutError("Scope timed out after 7200.0 second(s).")

    monkeypatch.setattr(submitting, "compute", wait)
    outcome = submitted([Sleep(name="one")], Store(tmp_path))
    failure = outcome.failed["one"]
    assert failure.reason == "the task took longer than run.timeout_seconds=7200; allowed: more"
    assert "Scope timed out after 7200.0 second(s)" in failure.trace


def test_a_task_of_several_clients_has_as_much_time_for_each(
    runner: Threads, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds: dict[str, float] = {}

    def submit(task: Any, parameters: dict[str, Any], needs: Any, job: Job[Any]) -> Any:
        seconds[parameters["title"]] = task.timeout_seconds
        return Threads.submit(runner, task, parameters, needs, job)

    monkeypatch.setattr(runner, "submit", submit)
    work = prepare(tiny_settings(workplace, run={"clients_per_task": 2, "timeout_seconds": 100}))
    with work.store.used_by_run("test") as run:
        transients = Transients(work.agenda, work.store, run)
        submit_missing(work.agenda, work.store, transients, work.settings.run, name="test")
    trained = {title: limit for title, limit in seconds.items() if title.startswith("train client")}
    assert sorted(trained.values()) == [100, 200]
    assert all(title.endswith(" and 1 others") == (limit == 200) for title, limit in trained.items())


def plans(folder: Path, *, workers: int = 2, **changes: Any) -> list[TaskPlan]:
    settings = tiny_settings(folder, **changes)
    return plan_tasks(prepare(settings).agenda.missing, settings.run, workers)


@pytest.fixture
def by_action(workplace: Path) -> Callable[..., dict[str, list[TaskPlan]]]:
    def found(**changes: Any) -> dict[str, list[TaskPlan]]:
        actions: dict[str, list[TaskPlan]] = {}
        for plan in plans(workplace, **changes):
            actions.setdefault(plan.first.action, []).append(plan)
        return actions

    return found


def test_each_client_has_a_task_for_each_step(by_action: Callable[..., dict[str, list[TaskPlan]]]) -> None:
    found = by_action(methods={"fedavg": {}, "fedfisher_kfac": {}, "fisher_merge": {}})
    label = "tiny tiny dirichlet_client alpha=0.5 clients=3 seed=0"
    assert [one.title for one in found["train"]] == [f"train client {one} of {label}" for one in range(3)]
    assert [one.title for one in found["statistics"]] == [
        f"compute statistics of client {one} of {label}" for one in range(3)
    ]
    # Both Fishers of a client share a pass over its data.
    assert [len(one.jobs) for one in found["statistics"]] == [2, 2, 2]
    assert sorted(one.title for one in found["aggregate"]) == [
        f"aggregate {one} of {label}" for one in ("fedavg", "fedfisher_kfac", "fisher_merge")
    ]
    assert len(found["evaluate"]) == 3


def test_clients_share_tasks_where_the_settings_or_their_number_say_so(
    by_action: Callable[..., dict[str, list[TaskPlan]]],
) -> None:
    many: dict[str, Any] = {"partition": {"clients": [101], "min_size": 1, "scheme": "iid"}}
    many |= {"data": {"validation_size": 0}, "train": {"together": None}}
    found = by_action(**many)
    # About four tasks a worker and step.
    assert [len(one.jobs) for one in found["train"]] == [13] * 7 + [10]
    assert found["train"][1].title.startswith("train client 13 of ")
    assert found["train"][1].title.endswith(" and 12 others")
    each = by_action(**many, run={"clients_per_task": 1})
    assert len(each["train"]) == len(each["encode"]) == 101
    few = by_action(run={"clients_per_task": 2})
    assert [len(one.jobs) for one in few["train"]] == [2, 1]
    assert len(few["aggregate"]) == 1


def test_rounds_of_clients_never_share_a_task(by_action: Callable[..., dict[str, list[TaskPlan]]]) -> None:
    found = by_action(rounds={"count": 2}, run={"clients_per_task": 3}, methods={"fedavg": {}, "fisher_merge": {}})
    assert [len(one.jobs) for one in found["train"]] == [3, 3, 3]


def test_tasks_can_be_filtered(runner: Threads, workplace: Path) -> None:
    settings = tiny_settings(workplace, methods={"fedavg": {}})
    work = prepare(settings)
    outcome = submit_missing(work.agenda, work.store, work.transients, settings.run, name="tiny")
    assert outcome.failed == {}
    tags = {title.split(" of ")[0]: found for title, found in runner.tags.items()}
    assert tags["train client 1"] == {"clients", "tiny", "round 1"}
    assert tags["aggregate fedavg"] == {"aggregates", "tiny", "fedavg", "round 1"}
    assert tags["evaluate fedavg"] == {"measures", "tiny", "fedavg", "round 1"}
    (encoded,) = [found for title, found in runner.arrows.items() if title.startswith("encode uploads of client 1")]
    assert [title.split(" of ")[0] for title in encoded] == ["train client 1"]
