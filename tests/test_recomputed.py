"""Edits of source, and what each of them has computed again; everything else is taken from the store."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import tiny
from tests.plugins.installed import HERE, ROOT, install

METHODS = ("fedavg", "regmean", "fedfisher_kfac", "scaled")
EVERY_CLIENT = {"train", "gram", "kfac", "send", *METHODS, "test"}
WALK = """
import json, sys
from dataclasses import replace
from pathlib import Path
from fedfisher_core.configuration import validate
from fedfisher_core.experiments.benchmark.plan import make_plan
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.jobs import graph_of
from fedfisher_core.store import Store
from fedfisher_core.batches import compute
from fedfisher_core.walk import Walk

plan = make_plan(validate(BenchmarkSettings, json.loads(sys.argv[1])))
store = Store(Path(sys.argv[2]))
walk, computed = Walk(graph_of(plan.jobs), store), []
while (batch := walk.take()) is not None:
    computed += [job.name for job in batch.jobs]
    # Each job by itself, so that it is seen which are computed.
    walk.keep(batch, compute(replace(batch, followers=()), store))
print(json.dumps(computed))
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

    def computed(self, edits: dict[str, tuple[str, str]]) -> set[str]:
        """Edit files, walk, and take the edits back: the first words of the jobs that were computed."""
        originals = {}
        for name, (old, new) in edits.items():
            path = self.folder / name
            originals[path] = path.read_text()
            assert old in originals[path], name
            path.write_text(originals[path].replace(old, new, 1))
        try:
            return {name.split()[0].rstrip(":") for name in self.walk()}
        finally:
            for path, text in originals.items():
                path.write_text(text)

    def walk(self) -> list[str]:
        path = os.pathsep.join([str(self.folder / "site"), str(self.folder)])
        environment = os.environ | {
            "PYTHONPATH": path,
            "FEDFISHER_DATA_DIR": str(self.folder / "data"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [sys.executable, "-c", WALK, json.dumps(SETTINGS), str(self.folder / "store")]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


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
    found = Project(folder)
    first = {name.split()[0].rstrip(":") for name in found.walk()}
    assert first == EVERY_CLIENT | {"decode", "split", "initial"}
    return found


def appended(path: str) -> dict[str, tuple[str, str]]:
    """An edit that changes no number: a constant that nobody reads, before the first import."""
    return {path: ("\nfrom ", "\n_UNREAD = 1\nfrom ")}


def test_words_settings_orchestration_and_siblings_change_nothing(project: Project) -> None:
    edits = {
        "site/edited_method.py": ("Take the first client's weights", "Take client 0's weights"),
        "site/edited_model.py": ("class Narrow", "# A comment.\nclass Narrow"),
        "fedfisher_core/client/training.py": ('"""Local training', '"""The local training'),
        **appended("fedfisher_core/settings/clients.py"),
        **appended("fedfisher_core/reporting/rows.py"),
        **appended("fedfisher_core/experiments/benchmark/rows.py"),
        **appended("fedfisher_core/experiments/benchmark/settings.py"),
        **appended("fedfisher_core/walk.py"),
        **appended("fedfisher_core/jobs.py"),
        **appended("fedfisher_core/locks.py"),
        **appended("fedfisher_core/files.py"),
        **appended("fedfisher_core/store/writing.py"),
        **appended("fedfisher_core/federation/federation.py"),
        **appended("fedfisher_core/federation/client_measures.py"),
        **appended("fedfisher_core/federation/measuring.py"),
        **appended("fedfisher_core/methods/fisher_merge.py"),
        **appended("fedfisher_core/models/resnet18.py"),
        **appended("fedfisher_core/client/null_space.py"),
        **appended("fedfisher_core/data/builtin.py"),
    }
    assert project.computed(edits) == set()


@pytest.mark.parametrize(
    ("edits", "again"),
    [
        # Seen before with versions kept by hand: both returned the old accuracy.
        ({"site/edited_method.py": ("FACTOR = 1.0", "FACTOR = -1.0")}, {"scaled", "test"}),
        ({"site/edited_model.py": ("functional.relu", "functional.tanh")}, {"initial", *EVERY_CLIENT}),
        ({"site/edited_helper.py": ("factor * tensor", "2 * factor * tensor")}, {"scaled", "test"}),
        (appended("fedfisher_core/methods/fedavg.py"), {"fedavg"}),
        (appended("fedfisher_core/solvers/conjugate_gradients.py"), {"fedfisher_kfac"}),
        # What comes out the same again is not handed on: statistics rest on trained weights, not on the training.
        (appended("fedfisher_core/client/training.py"), {"train"}),
        # A client's statistics share passes over its data, so that the engine counts for all of them.
        (appended("fedfisher_core/fisher/single_pass.py"), {"gram", "kfac"}),
        (appended("fedfisher_core/client/gram.py"), {"gram", "send", "regmean"}),
        # Another measure aggregates nothing anew.
        (appended("fedfisher_core/evaluation/measures.py"), {"test"}),
        (appended("fedfisher_core/data/partitions.py"), {"split"}),
        (appended("fedfisher_core/data/pictures.py"), {"decode"}),
        (
            {"fedfisher_core/client/training.py": ("descent.step(loss)", "descent.step(2 * loss)")},
            EVERY_CLIENT,
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_edit_computes_what_it_makes_again_and_no_more(
    project: Project, edits: dict[str, tuple[str, str]], again: set[str]
) -> None:
    assert project.computed(edits) == again


def test_what_an_edit_made_is_found_again(project: Project) -> None:
    edits = {"site/edited_method.py": ("FACTOR = 1.0", "FACTOR = 3.0")}
    assert project.computed(edits) == {"scaled", "test"}
    assert project.computed(edits) == set()
