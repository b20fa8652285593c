"""Walking a graph of made-up jobs, some of which fail: what is lost with them, and what goes on without."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from fedfisher_core.batches import compute
from fedfisher_core.errors import DivergedClientError, SomeDivergedError
from fedfisher_core.failures import Failure
from fedfisher_core.jobs import Job, graph_of, needed_for
from fedfisher_core.store import Artifact, Content, Store
from fedfisher_core.walk import Walk, require_all, walk_here
from tests.adding import Add, Others, add, results
from tests.counted import computed, nothing_computed_yet, store

__all__ = ["nothing_computed_yet", "store"]
"""Fixtures that pytest finds here."""


def client(number: int, *, fails: str | None = None, least: int = 0) -> list[Add]:
    """Training, two statistics and a payload of one client."""
    name = f"client {number}"
    return [
        add(f"train {name}", number=number, may_be_lost=True, fails=fails),
        add(f"fisher of {name}", f"train {name}", number=10, may_be_lost=True, task=f"statistics of {name}"),
        add(f"gram of {name}", f"train {name}", number=20, may_be_lost=True, task=f"statistics of {name}"),
        add(f"send {name}", f"train {name}", f"fisher of {name}", number=30, may_be_lost=True),
    ]


def server(clients: int, *, least: int) -> Add:
    return add("aggregate", optional=[f"send client {i}" for i in range(clients)], number=1000, least=least)


def federation(*, failing: Sequence[int], least: int, kind: str = "diverges") -> list[Add]:
    jobs = [job for i in range(3) for job in client(i, fails=kind if i in failing else None)]
    return [*jobs, server(3, least=least)]


def test_what_a_lost_client_would_have_made_is_lost_with_it(store: Store) -> None:
    graph = graph_of([*federation(failing=[1], least=2), add("report", "aggregate", number=0)])
    outcome = walk_here(graph, store)
    assert set(outcome.lost) == {
        "train client 1",
        "fisher of client 1",
        "gram of client 1",
        "send client 1",
    }
    assert {str(error) for error in outcome.lost.values()} == {"train client 1 diverged"}
    assert set(outcome.artifacts) | set(outcome.lost) == set(graph)
    whole = walk_here(graph_of(federation(failing=[], least=3)), store)
    # Client i's payload is 30 + i + (10 + i).
    assert results(outcome.artifacts)["aggregate"] == 1000 + 40 + 44
    assert results(whole.artifacts)["aggregate"] == 1000 + 40 + 42 + 44
    assert results(outcome.artifacts)["report"] == 1084


def test_too_few_that_are_left_end_the_work(store: Store) -> None:
    with pytest.raises(DivergedClientError, match="aggregate can't do without send client 1"):
        walk_here(graph_of(federation(failing=[1], least=3)), store)
    with pytest.raises(DivergedClientError, match="aggregate can't do without send client 0, send client 1"):
        walk_here(graph_of(federation(failing=[0, 1], least=2)), store)
    assert "aggregate" not in computed


def test_nobody_may_be_left(store: Store) -> None:
    outcome = walk_here(graph_of(federation(failing=[0, 1, 2], least=0)), store)
    assert results(outcome.artifacts) == {"aggregate": 1000}


def test_a_failure_of_another_kind_ends_the_work(store: Store) -> None:
    with pytest.raises(ValueError, match="out of paper"):
        walk_here(graph_of(federation(failing=[1], least=0, kind="out of paper")), store)


def finish(walk: Walk, store: Store) -> list[Failure]:
    """Do the work as a pool does, and list what is said of it."""
    found = []
    while (batch := walk.take()) is not None:
        try:
            artifacts = compute(batch, store)
        except (ValueError, DivergedClientError) as error:
            failure = walk.lose(batch, error)
            if failure is not None:
                found.append(failure)
        else:
            walk.keep(batch, artifacts)
    return found


def test_what_does_not_need_a_failed_job_is_done(store: Store) -> None:
    jobs = [
        add("a", number=1),
        add("broken", "a", number=2, fails="out of paper"),
        add("after", "broken", number=3),
        add("last", "after", "a", number=4),
        add("other", "a", number=5),
    ]
    walk = Walk(graph_of(jobs), store)
    (failure,) = finish(walk, store)
    assert (failure.job, failure.reason, failure.by_user) == ("broken", "ValueError: out of paper", False)
    assert "in compute" in failure.trace
    assert walk.finished
    assert results(walk.outcome.artifacts) == {"a": 1, "other": 6}
    assert walk.outcome.failed == dict.fromkeys(["broken", "after", "last"], failure)
    assert walk.outcome.lost == {}
    assert not Walk(graph_of(jobs), store).finished


def test_a_failed_client_takes_the_aggregation_with_it_whatever_is_tolerated(store: Store) -> None:
    walk = Walk(graph_of([*federation(failing=[1], least=0, kind="out of paper"), add("other", number=7)]), store)
    (failure,) = finish(walk, store)
    assert failure.job == "train client 1"
    assert walk.outcome.lost == {}
    names = ["train client 1", "fisher of client 1", "gram of client 1", "send client 1", "aggregate"]
    assert set(walk.outcome.failed) == set(names)
    assert set(walk.outcome.artifacts) == set(walk.graph) - set(names)


def test_too_few_clients_end_only_what_needs_them(store: Store) -> None:
    jobs = [*federation(failing=[0, 1], least=2), add("report", "aggregate", number=0), add("other", number=7)]
    walk = Walk(graph_of(jobs), store)
    (failure,) = finish(walk, store)
    assert failure.job == "train client 1"
    assert failure.reason == "aggregate can't do without send client 0, send client 1"
    assert failure.by_user
    assert set(walk.outcome.failed) == {"aggregate", "report"}
    assert walk.finished


def test_jobs_that_failed_together_are_tried_one_by_one(store: Store) -> None:
    jobs = [
        add("a", number=1, task="both"),
        add("b", number=2, task="both", fails="out of paper"),
        add("after a", "a", number=3),
        add("after b", "b", number=4),
    ]
    walk = Walk(graph_of(jobs), store)
    (failure,) = finish(walk, store)
    assert failure.job == "b"
    assert results(walk.outcome.artifacts) == {"a": 1, "after a": 4}
    assert set(walk.outcome.failed) == {"b", "after b"}


@dataclass(frozen=True)
class AddAll(Add):
    """Each of a batch would do the work of all."""

    whole: bool = True


def test_jobs_of_which_each_does_the_work_of_all_fail_together(store: Store) -> None:
    jobs = [
        AddAll(name="a", needs=Others(), task="both"),
        AddAll(name="b", needs=Others(), task="both", fails="out of paper"),
    ]
    walk = Walk(graph_of([*jobs, add("after a", "a"), add("other", number=7)]), store)
    (failure,) = finish(walk, store)
    assert (failure.job, failure.reason) == ("a", "ValueError: out of paper")
    assert set(walk.outcome.failed) == {"a", "b", "after a"}
    assert results(walk.outcome.artifacts) == {"other": 7}
    assert walk.finished


def test_a_job_that_needs_two_failed_ones_fails_once(store: Store) -> None:
    jobs = [add("a", number=1, fails="one"), add("b", number=2, fails="two"), add("sum", "a", "b", number=3)]
    walk = Walk(graph_of(jobs), store)
    assert [failure.job for failure in finish(walk, store)] == ["a", "b"]
    assert walk.done == 3
    assert walk.outcome.failed["sum"].job == "a"


def test_what_is_lost_and_what_fails_are_counted_once(store: Store) -> None:
    jobs = [
        add("lost", number=1, fails="diverges", may_be_lost=True, weight=9.0),
        add("broken", number=2, fails="out of paper"),
        add("both", "lost", "broken", number=3, may_be_lost=True),
        add("sum", "broken", optional=["both"], number=4),
    ]
    walk = Walk(graph_of(jobs), store)
    finish(walk, store)
    assert walk.finished
    assert (set(walk.outcome.lost), set(walk.outcome.failed)) == ({"lost", "both"}, {"broken", "sum"})


def test_whatever_must_not_be_lost_ends_the_work(store: Store) -> None:
    jobs = [add("a", number=1, fails="diverges"), add("b", optional=["a"], number=2)]
    with pytest.raises(DivergedClientError, match="a diverged"):
        walk_here(graph_of(jobs), store)


def test_a_lost_need_outside_a_mapping_ends_the_work(store: Store) -> None:
    jobs = [add("a", number=1, fails="diverges", may_be_lost=True), add("b", "a", number=2)]
    with pytest.raises(DivergedClientError, match="b can't do without a"):
        walk_here(graph_of(jobs), store)


def test_by_itself_a_job_does_without_nothing() -> None:
    class Plain(Add):
        def without(self, lost: Mapping[str, Exception]) -> None:
            Job.without(self, lost)

    error = DivergedClientError("a diverged")
    with pytest.raises(DivergedClientError) as caught:
        Plain(name="b").without({"a": error})
    assert caught.value is error


def test_equal_jobs_are_lost_together_if_all_of_them_may_be(store: Store) -> None:
    def twice(*, losable: bool) -> list[Add]:
        return [
            add("a", number=1, fails="diverges", may_be_lost=True),
            add("b", number=1, fails="diverges", may_be_lost=losable),
            add("sum", optional=["a", "b"], number=2),
        ]

    outcome = walk_here(graph_of(twice(losable=True)), store)
    assert set(outcome.lost) == {"a", "b"}
    assert results(outcome.artifacts) == {"sum": 2}
    with pytest.raises(DivergedClientError, match="diverged"):
        walk_here(graph_of(twice(losable=False)), store)


def test_a_batch_is_lost_as_a_whole(store: Store) -> None:
    jobs = [
        add("a", number=1, may_be_lost=True, task="both"),
        add("b", number=2, may_be_lost=True, task="both", fails="diverges"),
        add("sum", optional=["a", "b"], number=3),
    ]
    outcome = walk_here(graph_of(jobs), store)
    assert set(outcome.lost) == {"a", "b"}
    assert results(outcome.artifacts) == {"sum": 3}


@dataclass(frozen=True)
class Beside(Add):
    """Jobs that are computed together, and diverge each for itself."""

    @classmethod
    def compute_together(
        cls, jobs: Sequence["Beside"], inputs: Sequence[Others[Artifact]]
    ) -> list[Content | DivergedClientError]:
        def one(job: Beside, own: Others[Artifact]) -> Content | DivergedClientError:
            try:
                return job.compute(own)
            except DivergedClientError as error:
                return error

        return [one(job, own) for job, own in zip(jobs, inputs, strict=True)]


def test_of_a_batch_that_diverges_in_part_the_rest_is_kept(store: Store) -> None:
    jobs = [
        Beside(name="a", number=1, needs=Others(), may_be_lost=True, task="three"),
        Beside(name="b", number=2, needs=Others(), may_be_lost=True, task="three", fails="diverges"),
        Beside(name="c", number=3, needs=Others(), may_be_lost=True, task="three"),
        add("sum", optional=["a", "b", "c"], number=10),
    ]
    batch = Walk(graph_of(jobs), store).take()
    assert batch is not None
    with pytest.raises(SomeDivergedError, match=r"^b diverged$"):
        compute(batch, store)
    outcome = walk_here(graph_of(jobs), store)
    assert {name: str(error) for name, error in outcome.lost.items()} == {"b": "b diverged"}
    assert results(outcome.artifacts) == {"a": 1, "c": 3, "sum": 14}
    assert computed == ["a", "c", "sum"]


def test_who_waits_for_others_besides_is_released_when_they_are_done(store: Store) -> None:
    jobs = [
        add("quick", number=1, may_be_lost=True, fails="diverges", weight=9.0),
        add("slow", number=2),
        add("sum", "slow", optional=["quick"], number=3),
    ]
    walk = Walk(graph_of(jobs), store)
    quick, slow = iter(walk.take, None)
    walk.lose(quick, DivergedClientError("quick diverged"))
    assert walk.take() is None
    walk.keep(slow, compute(slow, store))
    (last,) = iter(walk.take, None)
    walk.keep(last, compute(last, store))
    assert walk.finished
    assert results(walk.outcome.artifacts) == {"slow": 2, "sum": 5}


def test_what_is_lost_stays_lost_when_another_need_is_done_later(store: Store) -> None:
    jobs = [
        add("quick", number=1, may_be_lost=True, fails="diverges", weight=9.0),
        add("slow", number=2),
        add("both", "quick", "slow", number=3, may_be_lost=True),
        add("sum", optional=["both"], number=4),
    ]
    walk = Walk(graph_of(jobs), store)
    quick, slow = iter(walk.take, None)
    walk.lose(quick, DivergedClientError("quick diverged"))
    (last,) = iter(walk.take, None)
    walk.keep(slow, compute(slow, store))
    assert walk.take() is None
    walk.keep(last, compute(last, store))
    assert walk.finished
    assert walk.done == 4
    assert set(walk.outcome.lost) == {"quick", "both"}


def test_jobs_that_were_not_asked_for_are_checked_too(store: Store) -> None:
    graph = graph_of(federation(failing=[1], least=3))
    asked = {job.name: job for job in needed_for(graph, [f"send client {i}" for i in range(3)])}
    outcome = walk_here(asked, store)
    assert "send client 1" in outcome.lost
    with pytest.raises(DivergedClientError, match="aggregate can't do without send client 1"):
        require_all(graph.values(), outcome)
    require_all(asked.values(), outcome)
    require_all(graph_of(federation(failing=[1], least=2)).values(), outcome)


def test_what_has_failed_is_not_lost_as_well(store: Store) -> None:
    jobs = [
        add("broken", number=2, fails="out of paper", weight=9.0),
        add("lost", number=1, fails="diverges", may_be_lost=True),
        add("both", "lost", "broken", number=3, may_be_lost=True),
    ]
    walk = Walk(graph_of(jobs), store)
    finish(walk, store)
    assert walk.finished
    assert (set(walk.outcome.lost), set(walk.outcome.failed)) == ({"lost"}, {"broken", "both"})


def test_a_divergence_that_ends_the_work_ends_it_whatever_diverges_beside_it(store: Store) -> None:
    jobs = [
        Beside(name="a", number=1, needs=Others(), task="both", fails="diverges"),
        Beside(name="b", number=2, needs=Others(), may_be_lost=True, task="both", fails="diverges"),
        add("sum", optional=["a", "b"], number=3),
    ]
    with pytest.raises(DivergedClientError, match="a diverged"):
        walk_here(graph_of(jobs), store)
