"""What names a job's result, what it needs, and that real jobs can travel to other processes."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import cloudpickle
import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.job import (
    NOTHING,
    Job,
    Numerics,
    Reference,
    artifacts_in,
    map_roles,
    roles_in,
)
from fedfisher_core.engine.plan import graph_of
from fedfisher_core.engine.store import Artifact
from fedfisher_core.experiments.benchmark.plan import make_plan
from fedfisher_core.experiments.fedfish_toy.plan import make_plan as make_toy_plan
from fedfisher_core.experiments.fedfish_toy.settings import FedFishToySettings
from fedfisher_core.experiments.privacy_attack.plan import make_plan as make_attack_plan
from fedfisher_core.experiments.privacy_attack.settings import AttackSettings
from fedfisher_core.experiments.two_layer.plan import make_plan as make_two_layer_plan
from fedfisher_core.experiments.two_layer.settings import TwoLayerSettings
from fedfisher_core.methods.configured import ConfiguredMethod
from fedfisher_core.settings.reading import validate
from tests import tiny
from tests.adding import Add, add, chain

ROOT = Path(__file__).parents[2]
R = TypeVar("R")


@dataclass(frozen=True)
class Inner(Generic[R]):
    one: R
    several: tuple[R, ...]


@dataclass(frozen=True)
class Outer(Generic[R]):
    first: R
    inner: Inner[R]
    mapped: Mapping[int, R]


ONE, TWO, THREE, FOUR = (add(name, number=i) for i, name in enumerate(("one", "two", "three", "four")))
NEEDS = Outer(first=ONE, inner=Inner(TWO, (THREE, ONE)), mapped={7: FOUR})


def artifact(name: str) -> Artifact:
    return Artifact(kind="kind", key=name, digest=f"digest of {name}", path=Path(name))


def test_roles_are_where_jobs_stand() -> None:
    found = [(role, job.name) for role, job in roles_in(NEEDS) if isinstance(job, Job)]
    assert found == [
        ("first", "one"),
        ("inner/one", "two"),
        ("inner/several/0", "three"),
        ("inner/several/1", "one"),
        ("mapped/7", "four"),
    ]
    assert list(roles_in(NOTHING)) == []


def test_artifacts_take_the_places_of_jobs() -> None:
    inputs = map_roles(NEEDS, lambda job: artifact(job.name))
    assert inputs == Outer(
        first=artifact("one"),
        inner=Inner(artifact("two"), (artifact("three"), artifact("one"))),
        mapped={7: artifact("four")},
    )
    assert map_roles(NOTHING, lambda job: artifact(job.name)) == NOTHING
    assert [one.key for one in artifacts_in(inputs)] == ["one", "two", "three", "one", "four"]


def test_a_key_covers_kind_version_settings_and_needed_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    key = chain()[0].key
    assert chain()[0].key == key
    assert chain(third=101)[0].key != key
    assert chain(first=2)[0].key != key
    for attribute, value in (("kind", "other"), ("version", 2)):
        with monkeypatch.context() as patch:
            patch.setattr(Add, attribute, value)
            assert chain()[0].key != key


def test_a_key_does_not_cover_what_people_read_and_how_work_is_carried_out() -> None:
    plain = add("plain")
    for other in (
        add("another name"),
        add("plain", task="together"),
        add("plain", may_diverge=True),
        add("plain", transient=3),
        add("plain", numerics=Numerics(threads=2)),
    ):
        # What computes in floating point puts its numerics among its settings.
        assert other.key == plain.key


def test_a_worker_gets_references_in_the_place_of_jobs() -> None:
    c, _, b = chain()
    detached = c.detached()
    assert detached.needs.needed == (Reference("sums", b.key),)
    assert detached.key == c.key
    assert len(cloudpickle.dumps(detached)) < len(cloudpickle.dumps(c))


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
def test_real_jobs_form_a_graph_have_versions_and_travel(workplace: Path, jobs: Any) -> None:
    graph = graph_of(jobs(workplace))
    kinds = {type(one) for one in graph.values()}
    assert len(kinds) >= (1 if jobs in ALONE else 6)
    for one in graph.values():
        assert "version" in {name for base in type(one).__mro__[:-1] for name in vars(base)}, type(one)
        assert one.version >= 1
        assert one.kind.isidentifier()
        sent = cloudpickle.dumps(one.detached())
        assert len(sent) < 100_000
        again = cloudpickle.loads(sent)
        assert again is not one
        assert (again.name, again.title, again.key, again.numerics) == (one.name, one.title, one.key, one.numerics)
        configured = getattr(one, "configured", None)
        if isinstance(configured, ConfiguredMethod):
            # A method may be made of partial functions, which equal none but themselves.
            assert again.configured.method.name == configured.method.name
            assert again.configured.dumped_settings() == configured.dumped_settings()
            assert (again.configured.wire, again.configured.uploads) == (configured.wire, configured.uploads)
            again = replace(again, configured=configured)
        assert again == one


def test_other_settings_make_other_jobs_of_the_same_name(workplace: Path) -> None:
    first = make_plan(tiny.tiny_settings(workplace, methods=METHODS)).jobs
    other = make_plan(tiny.tiny_settings(workplace, methods=METHODS, train={"epochs": 4})).jobs
    with pytest.raises(InputError, match="two different jobs are called"):
        graph_of([*first, *other])


def test_another_process_names_results_alike(workplace: Path) -> None:
    """What a job's result is called must not depend on where it is computed."""
    graph = graph_of(make_plan(tiny.tiny_settings(workplace, methods=METHODS)).jobs)
    made = [(one.detached(), one.key) for one in graph.values()]
    (workplace / "jobs.pickle").write_bytes(cloudpickle.dumps(made))
    program = (
        "import pickle, sys, tests.tiny\n"
        "made = pickle.load(open(sys.argv[1], 'rb'))\n"
        "wrong = [job.name for job, key in made if job.key != key]\n"
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
