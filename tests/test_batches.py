"""Short jobs that are computed along with what they need."""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

import pytest
import torch

from fedfisher_core.batches import Batch, Follower, compute
from fedfisher_core.errors import InputError
from fedfisher_core.jobs import Job, graph_of, inputs_of
from fedfisher_core.store import Artifact, Content, Step, Store, read_document, read_tensors, reading
from fedfisher_core.walk import Walk, walk_here
from tests.counted import computed, nothing_computed_yet, store

R = TypeVar("R")

__all__ = ["nothing_computed_yet", "store"]
"""Fixtures that pytest finds here."""


@dataclass(frozen=True)
class Needed(Generic[R]):
    """Jobs that are needed."""

    jobs: tuple[R, ...] = ()


@dataclass(frozen=True)
class Long(Job[Needed[Artifact]]):
    """Add one to the numbers of other jobs."""

    fails: bool = False

    def step(self, inputs: Needed[Artifact]) -> Step:
        seen = {str(i): one.digest for i, one in enumerate(inputs.jobs)}
        return Step(kind="sums", code="made up", settings={"of": type(self).__name__, "name": self.name}, inputs=seen)

    def compute(self, inputs: Needed[Artifact]) -> Content:
        computed.append(self.name)
        if self.fails:
            raise ValueError("no paper")
        return Content(documents={"sum.json": 1 + sum(read_document(one, "sum.json") for one in inputs.jobs)})


@dataclass(frozen=True)
class Short(Long):
    """The same, in no time."""

    @property
    def follows(self) -> bool:
        return True


def long(name: str, *needs: str, **chosen: Any) -> Long:
    return Long(name=name, needs=Needed(needs), **chosen)


def short(name: str, *needs: str, **chosen: Any) -> Short:
    return Short(name=name, needs=Needed(needs), **chosen)


def test_nothing_is_computed_that_a_full_disk_could_not_keep(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    job = long("one")
    batch = Batch(jobs=(job,), inputs=(Needed(),), steps=(job.step(Needed()),))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=3 * 2**20))
    with pytest.raises(InputError, match=r"run\.store=.* is on a disk with 3\.0 MiB left; allowed: 16 or more"):
        compute(batch, store)
    assert computed == []
    monkeypatch.undo()
    compute(batch, store)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    # What is there needs no room.
    compute(batch, store)
    assert computed == ["one"]


def batches(walk: Walk, store: Store) -> list[list[str]]:
    """Walk to the end: the names of each batch's jobs."""
    taken = []
    while (batch := walk.take()) is not None:
        taken.append([job.name for job in batch.jobs])
        walk.keep(batch, compute(batch, store))
    return taken


def test_a_short_job_is_computed_with_the_last_that_it_needs(store: Store) -> None:
    jobs = [long("a"), long("b"), short("c", "a", "b"), long("d", "c")]
    walk = Walk(graph_of(jobs), store)
    assert batches(walk, store) == [["a"], ["b"], ["d"]]
    assert computed == ["a", "b", "c", "d"]
    assert {name: read_document(one, "sum.json") for name, one in walk.outcome.artifacts.items()} == {
        "a": 1,
        "b": 1,
        "c": 3,
        "d": 4,
    }


def test_what_is_computed_along_is_not_looked_for_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = Walk(graph_of([long("a"), short("b", "a"), short("c", "a", fails=True)]), store)
    batch = walk.take()
    assert batch is not None
    artifacts = compute(batch, store)
    asked, find = [], store.find
    monkeypatch.setattr(store, "find", lambda step: asked.append(step.settings["name"]) or find(step))
    walk.keep(batch, artifacts)
    assert asked == ["c"]
    assert set(walk.outcome.artifacts) == {"a", "b"}
    assert walk.outcome.artifacts["b"] == find(graph_step(walk, "b"))


def graph_step(walk: Walk, name: str) -> Step:
    """Name the result of a job whose needs are done."""
    job = walk.graph[name]
    return job.step(inputs_of(job.needs, walk.outcome.artifacts))


@dataclass(frozen=True)
class Weighs(Long):
    """Make a file of tensors."""

    def compute(self, inputs: Needed[Artifact]) -> Content:
        return Content(tensors={"weights.safetensors": {"weight": torch.arange(3.0)}})


@dataclass(frozen=True)
class Doubles(Short):
    """Double the tensors of another."""

    def compute(self, inputs: Needed[Artifact]) -> Content:
        (one,) = inputs.jobs
        doubled = {name: 2 * tensor for name, tensor in read_tensors(one, "weights.safetensors").items()}
        return Content(tensors={"weights.safetensors": doubled})


def test_tensors_that_were_just_made_are_not_read_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    weighs, doubles = Weighs(name="weighs"), Doubles(name="doubles", needs=Needed(("weighs",)))
    batch = Batch((weighs,), (Needed(),), (weighs.step(Needed()),), (Follower(doubles, {}),))
    monkeypatch.setattr(reading, "read_bytes", lambda artifact, name: pytest.fail(f"{name} is read back"))
    made, doubled = compute(batch, store)
    monkeypatch.undo()
    assert torch.equal(read_tensors(made, "weights.safetensors")["weight"], torch.arange(3.0))
    assert torch.equal(read_tensors(doubled, "weights.safetensors")["weight"], 2 * torch.arange(3.0))
    # What the task tells of is small.
    assert (made.made, doubled.made) == (None, None)


def test_results_and_names_are_those_of_jobs_on_their_own(store: Store, tmp_path: Path) -> None:
    graph = graph_of([long("a"), short("b", "a"), short("c", "a")])
    together = walk_here(graph, store).artifacts
    alone = Store(tmp_path / "alone")
    walk = Walk(graph, alone)
    while (batch := walk.take()) is not None:
        walk.keep(batch, compute(replace(batch, followers=()), alone))
    assert {one: artifact.key for one, artifact in together.items()} == {
        one: artifact.key for one, artifact in walk.outcome.artifacts.items()
    }
    assert computed == ["a", "b", "c", "a", "b", "c"]


def test_what_the_store_has_is_not_computed_along(store: Store) -> None:
    graph = graph_of([long("a"), short("b", "a")])
    found = walk_here(graph, store).artifacts
    (found["a"].path / "sum.json").write_text(json.dumps(7))
    computed.clear()
    walk_here(graph, store)
    assert computed == ["a"]


def test_a_short_job_that_fails_costs_the_batch_nothing_and_fails_by_itself(store: Store) -> None:
    walk = Walk(graph_of([long("a"), short("b", "a", fails=True), long("c", "a")]), store)
    batch = walk.take()
    assert batch is not None
    assert walk.keep(batch, compute(batch, store)) is None
    assert set(walk.outcome.artifacts) == {"a"}
    batch = walk.take()
    assert batch is not None
    assert [job.name for job in batch.jobs] == ["b"]
    with pytest.raises(ValueError, match="no paper"):
        compute(batch, store)
    assert computed == ["a", "b", "b"]


def test_a_short_job_with_nothing_to_wait_for_is_a_batch_of_its_own(store: Store) -> None:
    assert batches(Walk(graph_of([short("a"), short("b", "a")]), store), store) == [["a"]]
    assert computed == ["a", "b"]


def test_what_was_stored_meanwhile_is_not_computed_again(store: Store) -> None:
    walk = Walk(graph_of([long("a", task="both"), long("b", task="both")]), store)
    batch = walk.take()
    assert batch is not None
    first = replace(batch, jobs=batch.jobs[:1], inputs=batch.inputs[:1], steps=batch.steps[:1])
    stored = compute(first, store)
    artifacts = compute(batch, store)
    assert computed == ["a", "b"]
    assert artifacts[:1] == stored
    assert walk.keep(batch, artifacts) is None
    assert walk.finished


@dataclass(frozen=True)
class Reading(Long):
    """Read a file whose content names the result."""

    reads_sources = True

    def step(self, inputs: Needed[Artifact]) -> Step:
        return Step(kind="files", code="made up", settings={"content": Path(self.name).read_text()}, inputs={})

    def compute(self, inputs: Needed[Artifact]) -> Content:
        Path(self.name).write_text("another")
        return Content(documents={"read.json": Path(self.name).read_text()})


def test_what_was_read_of_a_file_that_changed_is_not_stored_under_its_old_name(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "data"
    path.write_text("one")
    job = Reading(name=str(path), needs=Needed())
    step = job.step(Needed())
    with pytest.raises(InputError, match="its files were changed while they were read; start again"):
        compute(Batch((job,), (Needed(),), (step,)), store)
    assert store.find(step) is None
