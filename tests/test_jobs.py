"""The graph that jobs form, what they need, and that real jobs can travel to other processes."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import cloudpickle
import pytest

from fedfisher_core.configuration import validate
from fedfisher_core.errors import InputError
from fedfisher_core.experiments.attack.plan import make_plan as make_attack_plan
from fedfisher_core.experiments.attack.settings import AttackSettings
from fedfisher_core.experiments.benchmark.plan import make_plan
from fedfisher_core.experiments.fedfish_toy.plan import make_plan as make_toy_plan
from fedfisher_core.experiments.fedfish_toy.settings import FedFishToySettings
from fedfisher_core.experiments.two_layer.plan import make_plan as make_two_layer_plan
from fedfisher_core.experiments.two_layer.settings import TwoLayerSettings
from fedfisher_core.jobs import NOTHING, Job, dependents_of, graph_of, inputs_of, names_in, needed_for
from fedfisher_core.methods.binding import BoundMethod
from fedfisher_core.store import Artifact, Content, Step
from tests import tiny, walked

ROOT = Path(__file__).parents[1]
R = TypeVar("R")


@dataclass(frozen=True)
class Wants:
    """Any number of other jobs."""

    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Named(Job[Any]):
    """A job that is only looked at."""

    number: int = 0

    def step(self, inputs: Any) -> Step:
        raise NotImplementedError

    def compute(self, inputs: Any) -> Content:
        raise NotImplementedError


def job(name: str, *others: str, number: int = 0) -> Named:
    return Named(number, name=name, needs=Wants(others))


DIAMOND = [job("end", "left", "right"), job("left", "begin"), job("right", "begin"), job("begin"), job("alone")]


@pytest.mark.parametrize("order", [1, -1])
def test_each_job_comes_after_those_that_it_needs(order: int) -> None:
    graph = graph_of(DIAMOND[::order])
    assert set(graph) == {"begin", "left", "right", "end", "alone"}
    places = {name: i for i, name in enumerate(graph)}
    for name, one in graph.items():
        assert all(places[other] < places[name] for other in one.needs.others)


def test_no_jobs_make_an_empty_graph() -> None:
    assert graph_of([]) == {}


def test_equal_jobs_may_be_listed_twice() -> None:
    assert list(graph_of([*DIAMOND, *DIAMOND])) == list(graph_of(DIAMOND))
    assert list(graph_of([job("one"), Named(0, name="one", needs=Wants())])) == ["one"]


@pytest.mark.parametrize("other", [job("one", number=1), job("one", "begin")])
def test_two_jobs_of_one_name_are_refused(other: Named) -> None:
    with pytest.raises(InputError, match="two different jobs are called 'one'"):
        graph_of([job("begin"), job("one"), other])


def test_a_job_that_is_missing_is_named() -> None:
    with pytest.raises(InputError, match="job 'end' needs 'lost', which is no job of the graph"):
        graph_of([job("begin"), job("end", "begin", "lost")])


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([job("one", "one")], "in a circle: 'one'$"),
        ([job("begin"), job("one", "two", "begin"), job("two", "one")], "in a circle: 'one', 'two'$"),
    ],
)
def test_a_circle_is_named(jobs: list[Named], message: str) -> None:
    with pytest.raises(InputError, match=message):
        graph_of(jobs)


def test_a_need_may_be_named_twice() -> None:
    graph = graph_of([job("end", "begin", "begin"), job("begin")])
    assert list(graph) == ["begin", "end"]
    assert dependents_of(graph) == {"begin": ["end"], "end": []}


def test_dependents_are_direct() -> None:
    found = {name: sorted(others) for name, others in dependents_of(graph_of(DIAMOND)).items()}
    assert found == {"begin": ["left", "right"], "left": ["end"], "right": ["end"], "end": [], "alone": []}


@pytest.mark.parametrize(
    ("targets", "needed"),
    [
        ([], set()),
        (["begin"], {"begin"}),
        (["left"], {"begin", "left"}),
        (["end"], {"begin", "left", "right", "end"}),
        (["left", "alone"], {"begin", "left", "alone"}),
    ],
)
def test_what_targets_need_is_found_in_order(targets: list[str], needed: set[str]) -> None:
    graph = graph_of(DIAMOND)
    found = [one.name for one in needed_for(graph, targets)]
    assert found == [name for name in graph if name in needed]


@dataclass(frozen=True)
class Inner(Generic[R]):
    one: R
    several: tuple[R, ...]


@dataclass(frozen=True)
class Outer(Generic[R]):
    first: R
    inner: Inner[R]
    mapped: Mapping[int, R]
    nested: Mapping[int, Mapping[str, R]]


NEEDS = Outer(
    first="a",
    inner=Inner("b", ("c", "a")),
    mapped={2: "d", 1: "e"},
    nested={0: {"x": "f", "y": "g"}, 1: {"x": "h", "y": "f"}},
)


def artifact(name: str) -> Artifact:
    return Artifact(kind="kind", key=name, digest=name, path=Path(name))


FOUND = {name: artifact(name) for name in "abcdefgh"}


def test_names_are_found_in_everything_that_holds_them() -> None:
    assert list(names_in(NEEDS)) == ["a", "b", "c", "a", "d", "e", "f", "g", "h", "f"]
    assert list(names_in(NOTHING)) == []
    assert list(names_in("a")) == ["a"]


def test_artifacts_take_the_places_of_names() -> None:
    inputs = inputs_of(NEEDS, FOUND)
    assert inputs == Outer(
        first=FOUND["a"],
        inner=Inner(FOUND["b"], (FOUND["c"], FOUND["a"])),
        mapped={2: FOUND["d"], 1: FOUND["e"]},
        nested={0: {"x": FOUND["f"], "y": FOUND["g"]}, 1: {"x": FOUND["h"], "y": FOUND["f"]}},
    )
    assert list(inputs.mapped) == [2, 1]
    assert inputs_of(NOTHING, {}) == NOTHING


def test_what_is_lost_is_left_out_of_mappings() -> None:
    assert inputs_of(NEEDS, {name: one for name, one in FOUND.items() if name != "d"}).mapped == {1: FOUND["e"]}
    # A client without one of its statistics is missing as a whole.
    found = inputs_of(NEEDS, {name: one for name, one in FOUND.items() if name != "g"})
    assert found.nested == {1: {"x": FOUND["h"], "y": FOUND["f"]}}
    assert inputs_of(NEEDS, {name: one for name, one in FOUND.items() if name != "f"}).nested == {}


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_what_is_lost_is_missed_outside_mappings(name: str) -> None:
    with pytest.raises(KeyError):
        inputs_of(NEEDS, {other: one for other, one in FOUND.items() if other != name})


METHODS: Mapping[str, Mapping[str, Any]] = {
    "fedavg": {},
    "fedfisher_diag": {"solver": {"name": "paper", "steps": 3}},
    "kfac": {"method": "fedfisher_kfac", "wire": {"budget": "none"}},
    "regmean": {"only": {"seed": [0]}},
    "centralised": {},
    "securely": {"method": "fedavg", "wire": {"budget": "none", "server_view": "secure_sum"}},
}


def benchmark_jobs(folder: Path) -> list[Job[Any]]:
    return list(make_plan(tiny.tiny_settings(folder, methods=METHODS)).jobs)


def private_jobs(folder: Path) -> list[Job[Any]]:
    methods = {"fedavg": {}, "fedfisher_diag": {}}
    privacy = {"epsilon": 4.0, "delta": 1e-3}
    return list(make_plan(tiny.tiny_settings(folder, methods=methods, privacy=privacy)).jobs)


def attack_jobs(folder: Path) -> list[Job[Any]]:
    content = {
        "seeds": [0],
        "model": {"name": "compact"},
        "train": {"steps": 2},
        "threat": {"target_labels": [0, 1], "clients": 3, "extra_images": 10, "auxiliary_images": 100},
        "run": {"device": "cpu", "store": str(folder / "artifacts")},
    }
    return list(make_attack_plan(validate(AttackSettings, content)).jobs)


def two_layer_jobs(folder: Path) -> list[Job[Any]]:
    return list(make_two_layer_plan(validate(TwoLayerSettings, {"name": "theory"})).jobs)


def fedfish_toy_jobs(folder: Path) -> list[Job[Any]]:
    return list(make_toy_plan(validate(FedFishToySettings, {"name": "toy"})).jobs)


ALONE = [two_layer_jobs, fedfish_toy_jobs]
"""Experiments whose jobs are all of one kind."""
ALL = [benchmark_jobs, private_jobs, attack_jobs, *ALONE]


@pytest.mark.parametrize("jobs", ALL, ids=lambda one: one.__name__)
def test_real_jobs_form_a_graph_and_survive_pickling(workplace: Path, jobs: Any) -> None:
    graph = graph_of(jobs(workplace))
    kinds = {type(one) for one in graph.values()}
    assert len(kinds) >= (1 if jobs in ALONE else 6)
    for one in graph.values():
        again = cloudpickle.loads(cloudpickle.dumps(one))
        assert again is not one
        assert (again.name, again.batch, again.numerics) == (one.name, one.batch, one.numerics)
        bound = getattr(one, "bound", None)
        if isinstance(bound, BoundMethod):
            # A method may be made of partial functions, which equal none but themselves.
            assert again.bound.method.name == bound.method.name
            assert again.bound.dumped_settings() == bound.dumped_settings()
            assert (again.bound.wire, again.bound.uploads) == (bound.wire, bound.uploads)
            again = replace(again, bound=bound)
        assert again == one


@pytest.mark.parametrize("jobs", ALL, ids=lambda one: one.__name__)
def test_real_jobs_are_small(workplace: Path, jobs: Any) -> None:
    for one in graph_of(jobs(workplace)).values():
        assert len(cloudpickle.dumps(one)) < 100_000


def test_other_settings_make_other_jobs_of_the_same_name(workplace: Path) -> None:
    first = make_plan(tiny.tiny_settings(workplace, methods=METHODS)).jobs
    other = make_plan(tiny.tiny_settings(workplace, methods=METHODS, train={"epochs": 4})).jobs
    with pytest.raises(InputError, match="two different jobs are called"):
        graph_of([*first, *other])


def test_another_process_names_results_alike(workplace: Path) -> None:
    """What a job's result is called must not depend on where it is computed."""
    done = walked.walk_tiny(workplace, METHODS)
    made = []
    for one in graph_of(done.plan.jobs).values():
        inputs = inputs_of(one.needs, done.outcome.artifacts)
        key = one.step(inputs).key
        assert key == done.outcome.artifacts[one.name].key
        made.append((one, inputs, key))
    (workplace / "jobs.pickle").write_bytes(cloudpickle.dumps(made))
    program = (
        "import pickle, sys, tests.tiny\n"
        "made = pickle.load(open(sys.argv[1], 'rb'))\n"
        "wrong = [job.name for job, inputs, key in made if job.step(inputs).key != key]\n"
        "print(len(made), wrong)"
    )
    told = subprocess.run(
        [sys.executable, "-c", program, str(workplace / "jobs.pickle")],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split(maxsplit=1) == [str(len(made)), "[]\n"]
