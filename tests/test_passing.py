"""Results that pass: when their tensors go, what comes back for whom, and that nothing else is computed."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest
import torch

from fedfisher_core.batches import compute
from fedfisher_core.errors import DivergedClientError, JobError
from fedfisher_core.jobs import Job, dependents_of, graph_of, needed_for, part_of
from fedfisher_core.passing import Pruned
from fedfisher_core.store import Artifact, Content, Step, Store, read_document, read_tensors
from fedfisher_core.walk import Outcome, Walk, walk_here

R = TypeVar("R")

computed: list[str] = []
"""Names of the jobs that were computed, in their order."""
drift: dict[str, float] = {}
"""What is added to the result of a job, as by another library."""


@pytest.fixture(autouse=True)
def _nothing_yet() -> Iterator[None]:
    yield
    computed.clear()
    drift.clear()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "artifacts")


@dataclass(frozen=True)
class Others(Generic[R]):
    """Jobs that are needed: those whose tensors are read, and those of which it is enough that they are done."""

    read: tuple[R, ...] = ()
    beside: Mapping[str, R] = field(default_factory=dict)


@dataclass(frozen=True)
class Add(Job[Others[Artifact]]):
    """Add a number to the numbers that other jobs made, as a tensor."""

    number: int = 1
    fails: bool = False
    diverges: bool = False

    def reads(self) -> tuple[str, ...]:
        return self.needs.read

    def without(self, lost: Mapping[str, Exception]) -> None:
        return None

    def step(self, inputs: Others[Artifact]) -> Step:
        seen = {f"{i}": one.digest for i, one in enumerate(inputs.read)}
        return Step(kind="sums", code="made up", settings={"number": self.number}, inputs=seen)

    def compute(self, inputs: Others[Artifact]) -> Content:
        computed.append(self.name)
        if self.fails:
            raise ValueError("out of paper")
        if self.diverges:
            raise DivergedClientError(f"{self.name} diverged")
        others = sum(value(one) for one in inputs.read)
        made = torch.tensor([self.number + others + drift.get(self.name, 0.0)], dtype=torch.float64)
        return Content(
            tensors={"sum.safetensors": {"sum": made}},
            documents={"info.json": {"number": self.number}},
            timings={"seconds": random.random()},
        )


def add(name: str, *read: str, beside: tuple[str, ...] = (), **chosen: Any) -> Add:
    return Add(name=name, needs=Others(read, {one: one for one in beside}), **chosen)


def value(artifact: Artifact) -> float:
    return read_tensors(artifact, "sum.safetensors")["sum"].item()


def walked(store: Store, *jobs: Add) -> Outcome:
    """Do the work, and forget what was computed before."""
    computed.clear()
    return walk_here(graph_of(jobs), store)


def whole(outcome: Outcome) -> set[str]:
    """Name the jobs whose tensors are there, as the store says as well."""
    for artifact in outcome.artifacts.values():
        assert (artifact.path / "sum.safetensors").exists() != artifact.shed
        assert read_document(artifact, "info.json")
    return {name for name, artifact in outcome.artifacts.items() if not artifact.shed}


def rounds(count: int, *, keep: int, clients: int = 2) -> list[Add]:
    """Several rounds: clients train from the sum of the round before, send, and are summed."""
    jobs = [add("start", number=1)]
    for number in range(1, count + 1):
        passing = number if number <= count - keep else None
        before = "start" if number == 1 else f"sum {number - 1}"
        names = [f"{client} in {number}" for client in range(clients)]
        jobs += [add(f"train {one}", before, number=10 * number + i, passing=passing) for i, one in enumerate(names)]
        jobs += [add(f"send {one}", f"train {one}", number=100, passing=passing) for one in names]
        sent, trained = (tuple(f"{what} {one}" for one in names) for what in ("send", "train"))
        jobs.append(add(f"sum {number}", *sent, beside=trained, number=1000))
    return jobs


def of_round(number: int, clients: int = 2) -> set[str]:
    return {f"{what} {client} in {number}" for what in ("train", "send") for client in range(clients)}


def remove(store: Store, outcome: Outcome, *names: str) -> None:
    store.remove(outcome.artifacts[name].path for name in names)


def test_only_the_last_rounds_keep_their_tensors_and_sums_are_as_without(store: Store, tmp_path: Path) -> None:
    outcome = walked(store, *rounds(4, keep=1))
    assert whole(outcome) == {"start", "sum 1", "sum 2", "sum 3", "sum 4"} | of_round(4)
    plain = walk_here(graph_of(rounds(4, keep=4)), Store(tmp_path / "plain"))
    assert whole(plain) == set(plain.artifacts)
    assert {name: one.digest for name, one in plain.artifacts.items()} == {
        name: one.digest for name, one in outcome.artifacts.items()
    }


def test_tensors_go_as_soon_as_nobody_needs_them(store: Store) -> None:
    with store.rested_on("test") as lease:
        walk = Walk(graph_of(rounds(3, keep=1)), store)
        while (batch := walk.take()) is not None:
            walk.keep(batch, compute(batch, store))
            walk.shed(lease)
            there = {name for name, one in walk.outcome.artifacts.items() if not one.shed}
            needed = {
                name
                for name, others in dependents_of(walk.graph).items()
                if any(other not in walk.outcome.artifacts for other in others)
            }
            stays = {name for name, job in walk.graph.items() if job.passing is None}
            assert there == (needed | stays) & set(walk.outcome.artifacts)
        pruned = walk.take_pruned()
    assert (pruned.artifacts, pruned.rounds, pruned.left) == (8, {1, 2}, 0)
    assert pruned.bytes > 8 * 8
    assert str(pruned) == f"pruned the tensors of 8 artifacts of rounds 1 to 2, {pruned.bytes:,} bytes"
    assert str(walk.take_pruned()) == str(Pruned()) == ""


def test_a_rerun_computes_nothing_whatever_is_kept(store: Store) -> None:
    first = walked(store, *rounds(4, keep=1))
    for keep in (1, 2, 4):
        again = walked(store, *rounds(4, keep=keep))
        assert computed == []
        assert again.artifacts == first.artifacts


def test_a_sum_of_a_kept_round_costs_itself(store: Store) -> None:
    first = walked(store, *rounds(4, keep=1))
    remove(store, first, "sum 4")
    assert walked(store, *rounds(4, keep=1)).artifacts == first.artifacts
    assert computed == ["sum 4"]


def test_a_sum_of_an_early_round_costs_that_rounds_clients(store: Store) -> None:
    first = walked(store, *rounds(4, keep=1))
    remove(store, first, "sum 2")
    assert walked(store, *rounds(4, keep=1)).artifacts == first.artifacts
    assert sorted(computed) == sorted({"sum 2"} | of_round(2))
    assert whole(walked(store, *rounds(4, keep=1))) == whole(first)


def test_one_more_round_computes_one_more_and_prunes_one_more(store: Store) -> None:
    walked(store, *rounds(3, keep=1))
    outcome = walked(store, *rounds(4, keep=1))
    assert set(computed) == {"sum 4"} | of_round(4)
    assert whole(outcome) == {"start", "sum 1", "sum 2", "sum 3", "sum 4"} | of_round(4)


def test_what_is_only_awaited_is_not_made_again(store: Store) -> None:
    jobs = [
        add("train", number=1, passing=1),
        add("fisher", "train", number=2, passing=1),
        add("send", "train", number=3, passing=1),
        add("sum", "send", beside=("fisher", "train"), number=4),
    ]
    walked(store, *jobs)
    walked(store, *jobs, add("gram", "train", number=5, passing=1), add("other", "gram", beside=("fisher",), number=6))
    assert computed == ["train", "gram", "other"]


def test_what_was_measured_at_first_stays(store: Store) -> None:
    first = walked(store, *rounds(2, keep=1))
    path = first.artifacts["train 0 in 1"].path
    before = (path / "manifest.json").read_bytes()
    remove(store, first, "sum 1")
    walked(store, *rounds(2, keep=2))
    assert "train 0 in 1" in computed
    assert (path / "sum.safetensors").exists()
    assert (path / "manifest.json").read_bytes() == before


def test_long_chains_are_made_again_and_pruned_again(store: Store) -> None:
    chain = [add("0", number=1, passing=1)]
    chain += [add(str(i), str(i - 1), number=i, passing=1) for i in range(1, 1100)]
    last = add("last", "1099", number=0)
    with store.rested_on("test") as lease:
        walk = Walk(graph_of([*chain, last]), store)
        while (batch := walk.take()) is not None:
            walk.keep(batch, [_written(store, step, job) for step, job in zip(batch.steps, batch.jobs, strict=True)])
            walk.shed(lease)
        remove(store, walk.outcome, "last")
        again, count = Walk(graph_of([*chain, last]), store), 0
        while (batch := again.take()) is not None:
            count += len(batch.jobs)
            again.keep(batch, [_written(store, step, job) for step, job in zip(batch.steps, batch.jobs, strict=True)])
            again.shed(lease)
            if count % 100 == 0:
                assert sum(not one.shed for one in again.outcome.artifacts.values()) <= 2
    assert count == 1101
    assert again.outcome.artifacts == walk.outcome.artifacts


def _written(store: Store, step: Step, job: Job[Any]) -> Artifact:
    return store.write(step, Content(tensors={"sum.safetensors": {"sum": torch.zeros(1)}}))


@pytest.mark.parametrize("twins", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_missing_is_made_again_and_nothing_that_nobody_reads(store: Store, seed: int, twins: bool) -> None:
    """Against brute force: what must be computed is what is missing, and what that reads and was shed, and so on."""
    draw = random.Random(seed)
    jobs: list[Add] = []
    for i in range(draw.randint(2, 14)):
        others = [job.name for job in draw.sample(jobs, min(len(jobs), draw.randint(0, 3)))]
        cut = draw.randint(0, len(others))
        number, passing = draw.randint(0, 3) if twins else i, draw.choice([None, 1, 2])
        jobs.append(add(f"{i}", *others[:cut], beside=tuple(others[cut:]), number=number, passing=passing))
    first = walked(store, *jobs)
    graph = graph_of(jobs)
    same: dict[str, list[str]] = {}
    for name, artifact in first.artifacts.items():
        same.setdefault(artifact.key, []).append(name)
    # Where equal jobs are found at different times, one that passes decides.
    passing = {key for key, names in same.items() if any(graph[name].passing is not None for name in names)}
    for _ in range(4):
        gone = set(draw.sample(sorted(same), draw.randint(0, len(same))))
        for key in gone:
            store.remove([first.artifacts[same[key][0]].path])
        before = {key for key in same if key not in gone and not _is_whole(first, same, key)}
        wanted, todo = set(gone), set(gone)
        while todo:
            key = todo.pop()
            # Equal jobs read equal artifacts.
            read = {first.artifacts[need].key for need in graph[same[key][0]].reads()}
            more = (read & before) - wanted
            wanted |= more
            todo |= more
        outcome = walked(store, *jobs)
        assert {name: (one.key, one.digest) for name, one in outcome.artifacts.items()} == {
            name: (one.key, one.digest) for name, one in first.artifacts.items()
        }
        made = [first.artifacts[name].key for name in computed]
        if twins:
            # What is shed may be missed by a job that turns out to be equal later.
            assert set(made) >= wanted
        else:
            assert sorted(made) == sorted(wanted)
        assert {key for key in same if not _is_whole(outcome, same, key)} <= passing
        walked(store, *jobs)
        assert computed == []


def _is_whole(outcome: Outcome, same: Mapping[str, list[str]], key: str) -> bool:
    return (outcome.artifacts[same[key][0]].path / "sum.safetensors").exists()


def test_an_artifact_stays_that_another_job_keeps(store: Store) -> None:
    jobs = [add("a", number=1, passing=1), add("same", number=1), add("sum", "a", "same", number=2)]
    assert whole(walked(store, *jobs)) == {"a", "same", "sum"}


def test_what_failed_and_lost_jobs_need_stays_for_the_next_run(store: Store) -> None:
    for broken in (add("b", "a", number=2, fails=True), add("b", "a", number=2, diverges=True, may_be_lost=True)):
        jobs = [add("a", number=1, passing=1), broken, add("c", "a", number=3)]
        with store.rested_on("test") as lease:
            walk = Walk(graph_of(jobs), store)
            while (batch := walk.take()) is not None:
                try:
                    walk.keep(batch, compute(batch, store))
                except (ValueError, DivergedClientError) as error:
                    walk.lose(batch, error)
                walk.shed(lease)
        assert walk.finished
        assert whole(walk.outcome) == {"a", "c"}
        computed.clear()


def test_what_comes_out_otherwise_ends_what_needs_it_and_the_next_run_is_consistent(store: Store) -> None:
    first = walked(store, *rounds(3, keep=1))
    remove(store, first, "sum 1")
    drift["train 1 in 1"] = 0.5
    with pytest.raises(JobError, match=r"^train 1 in 1: its tensors were pruned, and came out otherwise"):
        walked(store, *rounds(3, keep=1))
    again = walked(store, *rounds(3, keep=1))
    fresh = walk_here(graph_of(rounds(3, keep=1)), Store(store.root.parent / "fresh"))
    assert {name: one.digest for name, one in again.artifacts.items()} == {
        name: one.digest for name, one in fresh.artifacts.items()
    }
    assert value(again.artifacts["sum 3"]) != value(first.artifacts["sum 3"])


@pytest.mark.parametrize("error", [ValueError("out of paper"), DivergedClientError("diverged")])
def test_what_can_not_be_made_again_takes_with_it_what_needs_it(store: Store, error: Exception) -> None:
    jobs = [*rounds(3, keep=1), add("other", "start", number=7)]
    first = walked(store, *jobs)
    remove(store, first, "sum 1", "other")
    walk, failures = Walk(graph_of(jobs), store), []
    while (batch := walk.take()) is not None:
        if batch.name == "train 0 in 1":
            failures.append(walk.lose(batch, error))
        else:
            assert walk.keep(batch, compute(batch, store)) is None
    assert walk.finished
    (failure,) = failures
    assert failure is not None
    assert failure.job == "train 0 in 1"
    left_out = {"sum 1", "sum 2", "sum 3"} | of_round(2) | of_round(3)
    assert walk.outcome.failed == dict.fromkeys(left_out, failure)
    assert "other" in walk.outcome.artifacts


def test_shed_jobs_that_failed_together_are_tried_one_by_one(store: Store) -> None:
    jobs = [
        add("a", number=1, passing=1, task="both"),
        add("b", number=2, passing=1, task="both"),
        add("sum", "a", "b", number=3),
    ]
    first = walked(store, *jobs)
    remove(store, first, "sum")
    walk = Walk(graph_of(jobs), store)
    both = walk.take()
    assert both is not None
    assert [job.name for job in both.jobs] == ["a", "b"]
    assert walk.lose(both, ValueError("out of paper")) is None
    while (batch := walk.take()) is not None:
        assert len(batch.jobs) == 1
        walk.keep(batch, compute(batch, store))
    assert walk.finished
    assert walk.outcome.artifacts["sum"] == first.artifacts["sum"]


def test_nothing_goes_while_another_run_is_there_and_it_is_said(store: Store) -> None:
    jobs = rounds(2, keep=1)
    with store.rested_on("this") as lease:
        walk = Walk(graph_of(jobs), store)
        with store.rested_on("another"):
            while (batch := walk.take()) is not None:
                walk.keep(batch, compute(batch, store))
                walk.shed(lease)
            assert whole(walk.outcome) == set(walk.graph)
            assert walk.may_shed
            assert str(walk.take_pruned()) == "left those of 4: another run uses the store"
        walk.shed(lease)
        assert not walk.may_shed
        assert whole(walk.outcome) == {"start", "sum 1", "sum 2"} | of_round(2)
        assert str(walk.take_pruned()).startswith("pruned the tensors of 4 artifacts of rounds 1 to 1, ")


def test_a_part_of_a_graph_keeps_what_the_rest_needs() -> None:
    jobs = [
        add("a", number=1, passing=1),
        add("b", "a", number=2, passing=1),
        add("c", "b", number=3),
        add("d", "a", number=4),
    ]
    graph = graph_of(jobs)
    assert {name: job.passing for name, job in part_of(graph, ["c"]).items()} == {"a": None, "b": 1, "c": None}
    assert part_of(graph, ["c", "d"]) == graph
    assert list(part_of(graph, ["c"])) == [job.name for job in needed_for(graph, ["c"])]


@pytest.mark.parametrize("changed", ["a", "b"])
def test_of_a_batch_that_is_made_again_each_that_comes_out_otherwise_is_told_of(store: Store, changed: str) -> None:
    jobs = [
        add("a", number=1, passing=1, task="both"),
        add("b", number=2, passing=1, task="both"),
        add("sum", "a", "b", number=3),
    ]
    remove(store, walked(store, *jobs), "sum")
    drift[changed] = 0.5
    with pytest.raises(JobError, match=rf"^{changed}: its tensors were pruned, and came out otherwise"):
        walked(store, *jobs)


@dataclass(frozen=True)
class AddAll(Add):
    """Each of a batch would do the work of all."""

    whole: bool = True


def test_what_is_made_again_does_not_fail_with_what_is_new(store: Store) -> None:
    old = [AddAll(name="a", needs=Others(), number=1, passing=1, task="both"), add("sum", "a", number=3)]
    remove(store, walked(store, *old), "sum")
    walk = Walk(graph_of([*old, AddAll(name="b", needs=Others(), number=2, task="both")]), store)
    while (batch := walk.take()) is not None:
        walk.lose(batch, ValueError("out of paper"))
    assert walk.finished
    assert {name: one.job for name, one in walk.outcome.failed.items()} == {"sum": "a", "b": "b"}
    assert set(walk.outcome.artifacts) == {"a"}


@dataclass(frozen=True)
class Short(Add):
    """It is computed along with what it needs."""

    @property
    def follows(self) -> bool:
        return True


def test_what_is_made_again_is_not_followed_by_what_is_done(store: Store) -> None:
    jobs = [add("a", number=1, passing=1), Short(name="b", needs=Others(("a",)), number=2), add("sum", "a", number=3)]
    remove(store, walked(store, *jobs), "sum")
    walk = Walk(graph_of(jobs), store)
    batch = walk.take()
    assert batch is not None
    assert ([job.name for job in batch.jobs], batch.followers) == (["a"], ())
