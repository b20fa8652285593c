"""The order of jobs, what is refused in a plan, and what is missing of it."""

import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fedfisher_core.engine.errors import DivergedClientError, InputError, JobError
from fedfisher_core.engine.failures import Failure, failed_jobs, failed_json, read_failed, traces_text
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.performing import execute
from fedfisher_core.engine.plan import agenda_of, graph_of, groups_of
from fedfisher_core.engine.store import Content, Store
from tests.adding import AddTogether, add, chain
from tests.counted import nothing_computed_yet, store

__all__ = ["nothing_computed_yet", "store"]
"""Fixtures that pytest finds here."""


def diamond() -> list[Job[Any]]:
    begin = add("begin")
    left, right = add("left", begin, number=2), add("right", begin, number=3)
    return [add("end", left, right), left, right, begin, add("alone", number=9)]


@pytest.mark.parametrize("order", [1, -1])
def test_each_job_comes_after_those_that_it_needs(order: int) -> None:
    graph = graph_of(diamond()[::order])
    assert set(graph) == {"begin", "left", "right", "end", "alone"}
    places = {name: i for i, name in enumerate(graph)}
    for name, one in graph.items():
        assert all(places[other.name] < places[name] for other in one.needs.needed)


def test_no_jobs_make_an_empty_graph() -> None:
    assert graph_of([]) == {}


def test_the_graph_has_all_that_the_listed_jobs_need() -> None:
    assert list(graph_of(chain()[:1])) == ["a", "b", "c"]


def test_equal_jobs_may_be_listed_twice_and_be_two_objects() -> None:
    assert list(graph_of([*diamond(), *diamond()])) == list(graph_of(diamond()))


def test_two_different_jobs_of_one_name_are_refused() -> None:
    for other in (add("one", number=1, fails="x"), add("one", add("begin"))):
        with pytest.raises(InputError, match="two different jobs are called 'one'; allowed: one"):
            graph_of([add("one"), other])


@dataclass(frozen=True)
class Loose(Job[Any]):
    """A job whose needs can be changed after it was made, which circles take."""

    kind: ClassVar[str] = "loose"
    version: ClassVar[int] = 1

    def settings(self) -> Mapping[str, Any]:
        return {}

    def compute(self, inputs: Any) -> Content:
        raise AssertionError("nothing computes it")


def test_a_circle_is_named() -> None:
    needed: list[Job[Any]] = []
    one = Loose(name="one", needs=needed)
    two = Loose(name="two", needs=(one,))
    needed.append(two)
    with pytest.raises(InputError, match=r"jobs need each other in a circle: '(one', 'two|two', 'one)'$"):
        graph_of([two])


def missing(jobs: list[Any], store: Store) -> list[str]:
    return [job.name for job in agenda_of(jobs, store).missing]


def test_of_an_empty_store_all_is_missing_in_order(store: Store) -> None:
    assert missing(chain(), store) == ["a", "b", "c"]


def test_nothing_is_missing_once_all_is_there(store: Store) -> None:
    first = execute(chain(), store)
    agenda = agenda_of(chain(), store)
    assert list(agenda.missing) == []
    assert dict(agenda.outcome(store, {}).artifacts) == dict(first.artifacts)


def test_what_only_jobs_need_that_are_there_is_not_asked_for(store: Store) -> None:
    execute(chain(), store)
    store.delete("sums", chain()[1].key)
    store.delete("sums", chain()[2].key)
    assert missing(chain()[:1], store) == []
    # What is listed is wanted itself, and what is missing asks for all that it needs.
    assert missing(chain(), store) == ["a", "b"]
    assert missing(chain(third=7)[:1], store) == ["a", "b", "c"]


def test_jobs_of_equal_keys_are_missing_once(store: Store) -> None:
    one, same = add("one", number=5), add("same", number=5)
    after, too = add("after", one, number=2), add("too", same, number=2)
    assert missing([one, same, after, too], store) == ["one", "after"]


def test_jobs_of_one_title_form_one_group_after_all_that_they_need(store: Store) -> None:
    a, b = add("a", number=1, task="both"), add("b", number=2, task="both")
    c = add("c", a, number=3)
    groups = groups_of(agenda_of([c, a, b], store).missing)
    assert [[job.name for job in group] for group in groups] == [["a", "b"], ["c"]]


def test_jobs_of_two_classes_share_no_group(store: Store) -> None:
    jobs = [add("a", number=1, task="both"), add("b", kind=AddTogether, number=2, task="both")]
    assert len(groups_of(agenda_of(jobs, store).missing)) == 2


def test_groups_that_need_each_other_are_named(store: Store) -> None:
    a = add("a", number=1, task="outer")
    b = add("b", a, number=2, task="inner")
    c = add("c", b, number=3, task="outer")
    with pytest.raises(InputError, match=r"tasks need each other in a circle: '(inner', 'outer|outer', 'inner)'"):
        groups_of(agenda_of([c], store).missing)


def raised(error: Exception) -> Exception:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


@pytest.mark.parametrize(
    ("error", "reason", "by_user"),
    [
        (ValueError("no\n  such\tshape"), "ValueError: no such shape", False),
        (KeyError("a"), "KeyError: 'a'", False),
        (InputError("alpha=0; allowed: above 0"), "alpha=0; allowed: above 0", True),
        (DivergedClientError("client 1 diverged"), "client 1 diverged", True),
        (JobError("OSError: disk", "Traceback of it"), "OSError: disk", False),
    ],
)
def test_a_reason_is_one_line(error: Exception, reason: str, by_user: bool) -> None:
    failure = Failure.of("a job", raised(error))
    assert (failure.reason, failure.by_user) == (reason, by_user)


def test_a_reason_is_bounded() -> None:
    reason = Failure.of("a job", ValueError("x" * 10_000)).reason
    assert len(reason) == 300
    assert reason.endswith("x…")


def test_a_traceback_is_kept_as_text_and_travels() -> None:
    assert "in raised" in Failure.of("a job", raised(ValueError("a"))).trace
    error = pickle.loads(pickle.dumps(JobError("ValueError: a", "Traceback")))  # noqa: S301
    assert (str(error), Failure.of("a job", error).trace) == ("ValueError: a", "Traceback")


FAILED = {
    "train": Failure("train", "ValueError: a", "first trace", False),
    "send": Failure("train", "ValueError: a", "first trace", False),
    "fedavg": Failure("train", "ValueError: a", "first trace", False),
    "other": Failure("other", "ValueError: b", "first trace", False),
    "diag": Failure("lost client", "too few", "second trace", True),
}


def test_each_cause_is_listed_once() -> None:
    found = [(one.job, one.reason, one.left_out) for one in failed_jobs(FAILED)]
    assert found == [
        ("train", "ValueError: a", ("send", "fedavg")),
        ("other", "ValueError: b", ()),
        ("lost client", "too few", ("diag",)),
    ]


def test_each_traceback_is_written_once() -> None:
    text = traces_text(FAILED)
    assert text.count("first trace") == text.count("second trace") == 1
    assert text.index("train: ValueError: a") < text.index("other: ValueError: b") < text.index("first trace")


def test_failed_jobs_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "failed.json"
    assert read_failed(path) == []
    path.write_bytes(failed_json(failed_jobs(FAILED)))
    assert tuple(read_failed(path)) == failed_jobs(FAILED)
    path.write_text(json.dumps({"job": 1}))
    with pytest.raises(InputError, match=r"failed\.json is no list of failed jobs"):
        read_failed(path)
