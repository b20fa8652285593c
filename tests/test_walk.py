"""Walking a graph of made-up jobs: what is computed, in which order, and what goes on without the lost."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pytest

from fedfisher_core.batches import Batch, compute
from fedfisher_core.errors import DivergedClientError
from fedfisher_core.failures import Failure
from fedfisher_core.jobs import Job, graph_of, needed_for
from fedfisher_core.store import Artifact, Content, Step, Store, read_document
from fedfisher_core.walk import Walk, require_all, walk_here
from tests.counted import computed, nothing_computed_yet, store

R = TypeVar("R")

__all__ = ["nothing_computed_yet", "store"]
"""Fixtures that pytest finds here."""


@dataclass(frozen=True)
class Others(Generic[R]):
    """Jobs that are needed, and those that can be missing."""

    needed: tuple[R, ...] = ()
    optional: Mapping[str, R] = field(default_factory=dict)


@dataclass(frozen=True)
class Add(Job[Others[Artifact]]):
    """Add a number to the numbers that other jobs made."""

    number: int = 1
    weight: float = 0.0
    fails: str | None = None
    least: int = 0

    def size(self, inputs: Others[Artifact]) -> float:
        return self.weight

    def without(self, lost: Mapping[str, Exception]) -> None:
        if any(name in lost for name in self.needs.needed) or len(self.needs.optional) - len(lost) < self.least:
            raise DivergedClientError(f"{self.name} can't do without {', '.join(sorted(lost))}")

    def step(self, inputs: Others[Artifact]) -> Step:
        seen = {f"needed_{i}": one.digest for i, one in enumerate(inputs.needed)}
        seen |= {f"optional_{key}": one.digest for key, one in inputs.optional.items()}
        return Step(kind="sums", code="made up", settings={"number": self.number, "fails": self.fails}, inputs=seen)

    def compute(self, inputs: Others[Artifact]) -> Content:
        if self.fails == "diverges":
            raise DivergedClientError(f"{self.name} diverged")
        if self.fails is not None:
            raise ValueError(self.fails)
        computed.append(self.name)
        others = sum(read_document(one, "sum.json") for one in (*inputs.needed, *inputs.optional.values()))
        return Content(documents={"sum.json": self.number + others})


def add(name: str, *needed: str, optional: Sequence[str] = (), **chosen: Any) -> Add:
    return Add(name=name, needs=Others(needed, {one: one for one in optional}), **chosen)


def results(artifacts: Mapping[str, Artifact]) -> dict[str, int]:
    return {name: read_document(artifact, "sum.json") for name, artifact in artifacts.items()}


CHAIN = [add("c", "b", number=100), add("a", number=1), add("b", "a", number=10)]


def test_jobs_get_what_they_need(store: Store) -> None:
    outcome = walk_here(graph_of(CHAIN), store)
    assert results(outcome.artifacts) == {"a": 1, "b": 11, "c": 111}
    assert computed == ["a", "b", "c"]
    assert outcome.lost == {}


def test_what_is_found_in_the_store_is_not_computed(store: Store) -> None:
    first = walk_here(graph_of(CHAIN), store)
    computed.clear()
    walk = Walk(graph_of(CHAIN), store)
    assert walk.finished
    assert walk.done == 3
    assert walk.take() is None
    assert walk.outcome.artifacts == first.artifacts
    assert walk_here(graph_of([*CHAIN, add("d", "c", number=1000)]), store).artifacts["d"].key
    assert computed == ["d"]


def test_what_rests_on_a_change_is_computed_anew(store: Store) -> None:
    walk_here(graph_of(CHAIN), store)
    computed.clear()
    changed = [add("a", number=1), add("b", "a", number=20), add("c", "b", number=100)]
    assert results(walk_here(graph_of(changed), store).artifacts) == {"a": 1, "b": 21, "c": 121}
    assert computed == ["b", "c"]


def test_a_result_that_was_changed_on_disk_is_computed_again(store: Store) -> None:
    first = walk_here(graph_of(CHAIN), store)
    (first.artifacts["b"].path / "sum.json").write_text("12")
    computed.clear()
    again = walk_here(graph_of(CHAIN), store)
    assert computed == ["b"]
    assert results(again.artifacts) == {"a": 1, "b": 11, "c": 111}


def test_only_what_targets_need_is_computed(store: Store) -> None:
    graph = graph_of([*CHAIN, add("other", "a")])
    walk_here({job.name: job for job in needed_for(graph, ["b"])}, store)
    assert computed == ["a", "b"]


def test_equal_steps_are_one(store: Store) -> None:
    jobs = [add("one", number=5), add("same", number=5), add("after", "one", number=2), add("too", "same", number=2)]
    outcome = walk_here(graph_of(jobs), store)
    assert computed == ["one", "after"]
    assert outcome.artifacts["one"] == outcome.artifacts["same"]
    assert outcome.artifacts["after"] == outcome.artifacts["too"]
    assert len(store.folders()) == 2


def test_an_equal_step_that_is_ready_while_the_first_is_computed_waits_for_it(store: Store) -> None:
    # Without the lost job, the late one computes what the slow one does.
    jobs = [
        add("slow", number=5),
        add("lost", number=1, may_be_lost=True),
        add("late", optional=["lost"], number=5),
        add("sum", "slow", "late", number=0),
    ]
    walk = Walk(graph_of(jobs), store)
    slow, lost = iter(walk.take, None)
    walk.lose(lost, DivergedClientError("lost"))
    assert walk.take() is None
    walk.keep(slow, compute(slow, store))
    (last,) = iter(walk.take, None)
    walk.keep(last, compute(last, store))
    assert walk.finished
    assert computed == ["slow", "sum"]
    assert results(walk.outcome.artifacts) == {"slow": 5, "late": 5, "sum": 10}


def test_merged_jobs_are_all_kept_by_one_result(store: Store) -> None:
    jobs = [add("a", number=3), add("b", number=3), add("sum", "a", "b", number=0)]
    walk = Walk(graph_of(jobs), store)
    (only,) = iter(walk.take, None)
    assert [job.name for job in only.jobs] == ["a"]
    walk.keep(only, compute(only, store))
    assert walk.done == 2
    (last,) = iter(walk.take, None)
    walk.keep(last, compute(last, store))
    assert walk.finished
    assert results(walk.outcome.artifacts) == {"a": 3, "b": 3, "sum": 6}


def test_the_largest_start_first(store: Store) -> None:
    weights = {"small": 1.0, "large": 30.0, "middle": 4.0, "none": 0.0}
    jobs = [add(name, number=i, weight=weight) for i, (name, weight) in enumerate(weights.items())]
    walk_here(graph_of(jobs), store)
    assert computed == ["large", "middle", "small", "none"]


def test_the_largest_of_all_that_are_ready_is_next(store: Store) -> None:
    jobs = [
        add("begin", number=1, weight=9.0),
        add("small", number=2, weight=1.0),
        add("later", "begin", number=3, weight=5.0),
    ]
    walk_here(graph_of(jobs), store)
    assert computed == ["begin", "later", "small"]


def test_what_is_equally_large_starts_in_the_order_of_the_graph(store: Store) -> None:
    walk_here(graph_of([add(name, number=i) for i, name in enumerate("dbca")]), store)
    assert computed == ["d", "b", "c", "a"]


def test_missing_jobs_of_a_batch_that_can_start_together_share_it(store: Store) -> None:
    jobs = [
        add("a", number=1, task="both"),
        add("b", number=2, task="both"),
        add("c", number=3),
        add("d", "c", number=4, task="both"),
    ]
    walk_here(graph_of([jobs[1]]), store)
    walk = Walk(graph_of([*jobs, add("e", number=5, task="both")]), store)
    taken = list(iter(walk.take, None))
    assert [(batch.name, [job.name for job in batch.jobs]) for batch in taken] == [("both", ["a", "e"]), ("c", ["c"])]
    for batch in taken:
        assert len(batch.jobs) == len(batch.inputs) == len(batch.steps)
        walk.keep(batch, compute(batch, store))
    (late,) = iter(walk.take, None)
    assert (late.name, [job.name for job in late.jobs]) == ("both", ["d"])
    walk.keep(late, compute(late, store))
    assert walk.finished


def test_nothing_is_handed_out_twice(store: Store) -> None:
    walk = Walk(graph_of(CHAIN), store)
    batch = walk.take()
    assert batch is not None
    assert walk.take() is None
    assert not walk.finished
    walk.keep(batch, compute(batch, store))
    assert [job.name for one in iter(walk.take, None) for job in one.jobs] == ["b"]


def test_a_walk_computes_nothing_itself(store: Store) -> None:
    walk = Walk(graph_of(CHAIN), store)
    walk.take()
    assert computed == []
    assert store.folders() == []


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


def test_a_batch_is_written_down_job_by_job(store: Store) -> None:
    jobs = (add("a", number=1, task="both"), add("b", number=2, task="both"))
    inputs = (Others[Artifact](), Others[Artifact]())
    steps = tuple(job.step(one) for job, one in zip(jobs, inputs, strict=True))
    artifacts = compute(Batch(jobs, inputs, steps), store)
    assert [artifact.key for artifact in artifacts] == [step.key for step in steps]
    manifests = [json.loads((artifact.path / "manifest.json").read_text()) for artifact in artifacts]
    assert [manifest["settings"]["number"] for manifest in manifests] == [1, 2]
