"""Which jobs share a task: short ones of a known length, and none that failed."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedfisher_core.batches import Batch
from fedfisher_core.errors import DivergedClientError, JobError
from fedfisher_core.jobs import graph_of
from fedfisher_core.store import Store
from fedfisher_core.walk import Walk
from flows.grouping import Groups
from tasks.job import Done, do_alone, do_each
from tests.flows.sleeping import Sleep


@dataclass(frozen=True)
class Doze(Sleep):
    """Another kind of job."""


@dataclass(frozen=True)
class Dream(Sleep):
    """A job whose name begins with what decides how long it takes."""

    @property
    def pace(self) -> str:
        return self.name[0]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "artifacts")


def walk_of(store: Store, jobs: Sequence[Sleep]) -> Walk:
    return Walk(graph_of(jobs), store)


def learned(walk: Walk, store: Store, seconds: float) -> Groups:
    """Groups that have seen one batch."""
    groups = Groups(walk)
    group = take(groups, 1, longest=1.0)
    (done,) = do_alone(group[0], store)
    assert groups.settle(group, [Done(done.artifacts, seconds)]) == []
    return groups


def take(groups: Groups, places: int, *, longest: float, least: float = 0.2) -> tuple[Batch, ...]:
    group = groups.take(places, longest=longest, least=least)
    return () if group is None else group.batches


def names(group: Sequence[Batch]) -> list[str]:
    return [batch.name for batch in group]


def test_jobs_of_an_unknown_length_have_a_task_each(store: Store) -> None:
    groups = Groups(walk_of(store, [Sleep(name=f"sleep {i}") for i in range(4)]))
    assert [len(take(groups, 1, longest=1.0)) for _ in range(5)] == [1, 1, 1, 1, 0]


def test_short_jobs_travel_together_and_the_less_is_left_the_fewer(store: Store) -> None:
    walk = walk_of(store, [Sleep(name=f"sleep {i}") for i in range(21)])
    groups = learned(walk, store, 0.09)
    assert [len(take(groups, 2, longest=1.0)) for _ in range(5)] == [10, 5, 3, 2, 0]


def test_where_a_task_costs_more_it_may_be_longer(store: Store) -> None:
    walk = walk_of(store, [Sleep(name=f"sleep {i}") for i in range(21)])
    groups = learned(walk, store, 2.0)
    assert [len(take(groups, 4, longest=8.0)) for _ in range(9)] == [4, 4, 3, 3, 2, 1, 1, 1, 1]


def test_what_is_very_short_is_not_shared_out(store: Store) -> None:
    walk = walk_of(store, [Sleep(name=f"sleep {i}") for i in range(21)])
    groups = learned(walk, store, 0.011)
    assert [len(take(groups, 4, longest=1.0)) for _ in range(3)] == [18, 2, 0]


def test_a_task_is_no_longer_than_a_second(store: Store) -> None:
    walk = walk_of(store, [Sleep(name=f"sleep {i}") for i in range(21)])
    groups = learned(walk, store, 0.3)
    assert [len(take(groups, 1, longest=1.0)) for _ in range(3)] == [3, 3, 3]


def test_length_goes_with_the_size_that_jobs_guess(store: Store) -> None:
    sizes = [1000.0, 900.0, 300.0, 200.0, 100.0, 90.0]
    walk = walk_of(store, [Sleep(name=f"{size:g}", weight=size) for size in sizes])
    groups = learned(walk, store, 2.0)
    assert [names(take(groups, 1, longest=1.0)) for _ in range(3)] == [["900"], ["300", "200"], ["100", "90"]]


def test_what_one_kind_took_says_nothing_of_another(store: Store) -> None:
    walk = walk_of(store, [Sleep(name="a"), Sleep(name="b"), Sleep(name="c"), Doze(name="d"), Doze(name="e")])
    groups = learned(walk, store, 0.01)
    assert [names(take(groups, 1, longest=1.0)) for _ in range(3)] == [["b", "c"], ["d"], ["e"]]


def test_jobs_of_one_kind_may_have_paces_of_their_own(store: Store) -> None:
    walk = walk_of(store, [Dream(name=name) for name in ("a1", "a2", "a3", "b1", "b2")])
    groups = learned(walk, store, 0.01)
    assert [names(take(groups, 1, longest=1.0)) for _ in range(3)] == [["a2", "a3"], ["b1"], ["b2"]]


def test_a_slow_job_is_believed_at_once_and_a_fast_one_slowly(store: Store) -> None:
    walk = walk_of(store, [Sleep(name=f"sleep {i}") for i in range(40)])
    groups = learned(walk, store, 0.1)
    group = take(groups, 1, longest=1.0)
    assert len(group) == 10
    groups.settle(group, [Done(done.artifacts, 0.4) for done in do_each(group, store)])
    group = take(groups, 1, longest=1.0)
    assert len(group) == 2
    groups.settle(group, [Done(done.artifacts, 0.1) for done in do_each(group, store)])
    assert len(take(groups, 1, longest=1.0)) == 5


def test_what_fails_in_company_is_tried_again_alone_and_the_others_are_kept(store: Store) -> None:
    broken = [Sleep(name="broken", error=ValueError("no paper")), Sleep(name="lost", error=DivergedClientError("nan"))]
    walk = walk_of(store, [Sleep(name="first"), broken[0], Sleep(name="second"), broken[1], Sleep(name="third")])
    groups = learned(walk, store, 0.01)
    group = take(groups, 1, longest=1.0)
    assert names(group) == ["broken", "second", "lost", "third"]
    done = do_each(group, store)
    assert [one.artifacts is None for one in done] == [True, False, True, False]
    assert groups.settle(group, done) == []
    assert set(walk.outcome.artifacts) == {"first", "second", "third"}
    alone = [take(groups, 1, longest=1.0), take(groups, 1, longest=1.0)]
    assert sorted(map(names, alone)) == [["broken"], ["lost"]]
    reasons = []
    for (batch,) in alone:
        with pytest.raises((JobError, DivergedClientError)) as caught:
            do_alone(batch, store)
        reasons += [failure.reason for failure in groups.settle([batch], caught.value)]
    assert sorted(reasons) == ["ValueError: no paper", "nan"]
    assert walk.finished


def test_a_task_that_is_stopped_leaves_its_batches_to_tasks_of_their_own(store: Store) -> None:
    walk = walk_of(store, [Sleep(name=f"sleep {i}") for i in range(3)])
    groups = learned(walk, store, 0.01)
    group = take(groups, 1, longest=1.0)
    assert groups.settle(group, TimeoutError("too long")) == []
    assert sorted(names(take(groups, 1, longest=1.0)) + names(take(groups, 1, longest=1.0))) == names(group)
    assert take(groups, 1, longest=1.0) == ()
    assert not walk.finished
