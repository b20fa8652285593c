"""Walking a graph of made-up jobs: what is computed, and in which order."""

import json

from fedfisher_core.batches import Batch, compute
from fedfisher_core.errors import DivergedClientError
from fedfisher_core.jobs import graph_of, needed_for
from fedfisher_core.store import Artifact, Store
from fedfisher_core.walk import Walk, walk_here
from tests.adding import CHAIN, Others, add, results
from tests.counted import computed, nothing_computed_yet, store

__all__ = ["nothing_computed_yet", "store"]
"""Fixtures that pytest finds here."""


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


def test_a_batch_is_written_down_job_by_job(store: Store) -> None:
    jobs = (add("a", number=1, task="both"), add("b", number=2, task="both"))
    inputs = (Others[Artifact](), Others[Artifact]())
    steps = tuple(job.step(one) for job, one in zip(jobs, inputs, strict=True))
    artifacts = compute(Batch(jobs, inputs, steps), store)
    assert [artifact.key for artifact in artifacts] == [step.key for step in steps]
    manifests = [json.loads((artifact.path / "manifest.json").read_text()) for artifact in artifacts]
    assert [manifest["settings"]["number"] for manifest in manifests] == [1, 2]
