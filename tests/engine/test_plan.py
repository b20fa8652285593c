"""The order of jobs, what is refused in a plan, and what is missing of it."""

import compileall
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any, ClassVar

import pytest

from fedfisher_core.engine.errors import DivergedClientError, InputError, JobError
from fedfisher_core.engine.failures import Failure, failed_jobs, failed_json, read_failed, traces_text
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.performing import execute
from fedfisher_core.engine.plan import agenda_of, graph_of, groups_of
from fedfisher_core.engine.store import Content, Store
from tests import tiny
from tests.adding import AddTogether, add, chain
from tests.counted import nothing_computed_yet, store
from tests.plugins.installed import HERE, ROOT, install

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


METHODS = ("fedavg", "regmean", "fedfisher_kfac", "scaled")
PLANNING = """
import json, sys
from pathlib import Path
from fedfisher_core.settings.reading import validate
from fedfisher_core.engine.performing import execute
from fedfisher_core.engine.plan import agenda_of
from fedfisher_core.experiments.benchmark.plan import make_plan
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.engine.store import Store

plan = make_plan(validate(BenchmarkSettings, json.loads(sys.argv[1])))
store = Store(Path(sys.argv[2]))
print(json.dumps([job.name for job in agenda_of(plan.jobs, store).missing]))
if sys.argv[3] == "compute":
    execute(plan.jobs, store)
"""
SETTINGS = {
    "seeds": [0],
    "data": {"dataset": "tiny", "validation_size": 20},
    "partition": {"alpha": [0.5], "clients": [2], "min_size": 5},
    "model": {"name": "narrow"},
    "train": {"epochs": 2, "batch_size": 16},
    "methods": {method: {} for method in METHODS},
    "run": {"device": "cpu"},
}


@dataclass(frozen=True)
class Project:
    """A copy of the project and of a plug-in, with a store that is filled by the sources as they are."""

    folder: Path

    def missing(self, edits: dict[str, tuple[str, str]]) -> set[str]:
        """Edit files, plan, and take the edits back: what would be computed, without clients and federations."""
        originals = {}
        for name, (old, new) in edits.items():
            path = self.folder / name
            originals[path] = path.read_text()
            assert old in originals[path], name
            path.write_text(originals[path].replace(old, new, 1))
        try:
            return set(map(short, self.plan()))
        finally:
            for path, text in originals.items():
                path.write_text(text)

    def plan(self, then: str = "stop") -> list[str]:
        path = os.pathsep.join([str(self.folder / "site"), str(self.folder)])
        environment = os.environ | {
            "PYTHONPATH": path,
            "FEDFISHER_DATA_DIR": str(self.folder / "data"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [sys.executable, "-c", PLANNING, json.dumps(SETTINGS), str(self.folder / "store"), then]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


def short(name: str) -> str:
    """Shorten a job's name to what it does: "aggregate fedavg", "train", "encode weights"."""
    words = name.split(" of ")[0].split(" client ")[0].split(" as ")[0].split()
    return " ".join(words[: 4 if words[0] == "encode" else 2])


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "fedfisher_core", folder / "fedfisher_core", ignore=shutil.ignore_patterns("__pycache__"))
    tiny.write_tiny(folder / "data")
    install(
        folder / "site",
        package="edited",
        version="1.0",
        entry_points={
            "fedfisher.datasets": "tiny = edited_data",
            "fedfisher.models": "narrow = edited_model",
            "fedfisher.methods": "scaled = edited_method",
        },
        sources=HERE / "edited",
    )
    # A process that imports an edited file has to read it, however soon after the edit.
    compileall.compile_dir(folder, quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    found = Project(folder)
    first = Counter(map(short, found.plan("compute")))
    assert {name.split()[0] for name in first} == {
        *("decode", "split", "draw", "train", "gram", "kfac", "encode", "aggregate", "evaluate")
    }
    return found


def appended(path: str) -> dict[str, tuple[str, str]]:
    """An edit that changes no number: a constant that nothing reads, before the first import."""
    return {path: ("\nfrom ", "\n_UNREAD = 1\nfrom ")}


def ends_of(*methods: str) -> set[str]:
    return {f"{word} {method}" for method in methods for word in ("aggregate", "evaluate")}


def test_words_settings_orchestration_and_shared_modules_change_nothing(project: Project) -> None:
    edits = {
        "site/edited_method.py": ("Take the first client's weights", "Take client 0's weights"),
        "site/edited_model.py": ("class Narrow", "# A comment.\nclass Narrow"),
        "fedfisher_core/client/training.py": ('"""Local training', '"""The local training'),
        **appended("fedfisher_core/settings/clients.py"),
        **appended("fedfisher_core/reporting/rows.py"),
        **appended("fedfisher_core/experiments/benchmark/rows.py"),
        **appended("fedfisher_core/engine/plan.py"),
        **appended("fedfisher_core/engine/store/writing.py"),
        **appended("fedfisher_core/federation/jobs.py"),
        **appended("fedfisher_core/methods/fisher_merge.py"),
        **appended("fedfisher_core/models/resnet18.py"),
        **appended("fedfisher_core/client/statistics/null_space.py"),
        # Golden numbers guard the modules that several results share; their versions are raised by hand.
        **appended("fedfisher_core/methods/solvers/exact.py"),
        **appended("fedfisher_core/client/training.py"),
        **appended("fedfisher_core/communication/wire/codec.py"),
    }
    edits = {name: edit for name, edit in edits.items() if (project.folder / name).exists()}
    assert project.missing(edits) == set()


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("edits", "again"),
    [
        # Seen before with versions kept by hand: the method and its helper returned the old accuracy.
        (
            {"site/edited_method.py": ("FACTOR = 1.0", "FACTOR = -1.0")}
            | appended("fedfisher_core/client/statistics/gram.py"),
            {"gram", "encode weights and gram", *ends_of("scaled", "regmean")},
        ),
        (
            {"site/edited_helper.py": ("factor * tensor", "2 * factor * tensor")}
            | appended("fedfisher_core/methods/fedavg.py"),
            ends_of("scaled", "fedavg"),
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_edit_computes_what_it_makes_again_and_no_more(
    project: Project, edits: dict[str, tuple[str, str]], again: set[str]
) -> None:
    assert project.missing(edits) == again


def test_an_edited_network_is_trained_and_all_that_rests_on_it_is_made_again(project: Project) -> None:
    missing = project.missing({"site/edited_model.py": ("functional.relu", "functional.tanh")})
    assert {"draw initial", "train", "gram", "kfac", *ends_of(*METHODS)} <= missing
    assert not [name for name in missing if name.startswith(("decode", "split"))]


@pytest.mark.drawn(0)
def test_what_an_edit_made_is_found_again(project: Project) -> None:
    method = project.folder / "site/edited_method.py"
    text = method.read_text()
    method.write_text(text.replace("FACTOR = 1.0", "FACTOR = 3.0"))
    try:
        assert {short(name) for name in project.plan("compute")} == ends_of("scaled")
        assert project.plan() == []
    finally:
        method.write_text(text)
    assert project.plan() == []
