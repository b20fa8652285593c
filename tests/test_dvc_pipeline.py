"""The stages of dvc.yaml name the code that they run, as the digests of their results see it."""

import inspect
import itertools
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from fedfisher_core import reporting, sources
from fedfisher_core.experiments.contract import experiment_of
from fedfisher_core.experiments.loading import load
from fedfisher_core.federation.secure import AggregateSecurely
from fedfisher_core.jobs import graph_of, inputs_of, needed_for
from fedfisher_core.methods.method import methods
from fedfisher_core.server_optimisers.optimiser import server_optimisers
from fedfisher_core.settings import ExperimentSettings, FederationSettings
from fedfisher_core.store import Store
from fedfisher_core.walk import walk_here

ROOT = Path(__file__).parents[1]
PIPELINE: Mapping[str, Any] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
ATTACK = ROOT / "configs" / "privacy_demo.yaml"

# What is left of the work decides no more which code does it.
SHORT = ["seeds=[0]", "train.epochs=1"]
SHORT_BENCHMARK = [*SHORT, "partition.alpha=[0.5]", "partition.clients=[3]"]
# So that the stages' code is that of all their jobs.
SHORT_BENCHMARK += ["measures.barrier=true", "measures.personalisation={unseen_clients: 1}"]
SHORT_ATTACK = [
    *SHORT,
    "threat.target_labels=[3]",
    "gan.width=2",
    "gan.generator_steps=2",
    "inversion.iterations=2",
    "evaluator.epochs=1",
]


@pytest.fixture(scope="module")
def closures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, set[str]]]:
    """By experiment and stage of its plan, all modules whose source the keys of the stage's own jobs hold."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("FEDFISHER_DATA_DIR", raising=False)
        patch.chdir(tmp_path_factory.mktemp("pipeline"))
        return {
            "benchmark": closures_of(load(ROOT / "params.yaml", SHORT_BENCHMARK)),
            "attack": closures_of(load(ATTACK, SHORT_ATTACK)),
        }


def closures_of(settings: ExperimentSettings) -> dict[str, set[str]]:
    plan = experiment_of(settings).plan(settings)
    graph = graph_of(plan.jobs)
    outcome = walk_here(graph, Store(Path(f"artifacts-{settings.name}")))
    found: dict[str, set[str]] = {}
    earlier: set[str] = set()
    for stage, targets in plan.stages.items():
        jobs = [job for job in needed_for(graph, targets) if job.name not in earlier]
        earlier |= {job.name for job in jobs}
        found[stage] = set()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sources, "modules_of", recording(found[stage]))
            for job in jobs:
                job.step(inputs_of(job.needs, outcome.artifacts))
    return found


def recording(modules: set[str]) -> Any:
    modules_of = sources.modules_of

    def recorded(*made_by: Any) -> tuple[str, ...]:
        closure = modules_of(*made_by)
        modules.update(closure)
        return closure

    return recorded


def file_of(module: str) -> Path:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).relative_to(ROOT)


def package_of(thing: type | ModuleType) -> Path:
    return Path(inspect.getfile(thing)).parent.relative_to(ROOT)


def missing(stage: str, files: Iterable[Path]) -> set[Path]:
    dependencies = [Path(one) for one in PIPELINE[stage]["deps"]]
    return {file for file in files if not any(file.is_relative_to(one) for one in dependencies)}


@pytest.mark.parametrize("stage", ["clients", "aggregates"])
def test_a_stage_names_the_code_of_its_jobs(closures: dict[str, dict[str, set[str]]], stage: str) -> None:
    modules = closures["benchmark"][stage]
    assert len(modules) > 10
    assert missing(stage, map(file_of, modules)) == set()


def test_the_attack_names_the_code_of_all_its_jobs(closures: dict[str, dict[str, set[str]]]) -> None:
    modules = set().union(*closures["attack"].values())
    assert "fedfisher_core.attack.inversion" in modules
    assert missing("attack", map(file_of, modules)) == set()


@pytest.mark.parametrize("stage", ["aggregates", "attack"])
def test_a_stage_that_aggregates_names_the_code_of_all_methods(stage: str) -> None:
    registered = [registry.get(name).function for registry in (methods, server_optimisers) for name in registry]
    # Other tests register some of their own.
    own = [one for one in registered if one.__module__.startswith(sources.CORE)]
    modules = sources.modules_of(*own, AggregateSecurely)
    assert "fedfisher_core.alignment.transport" in modules
    assert missing(stage, map(file_of, modules)) == set()


@pytest.mark.parametrize(("stage", "config"), [("report", ROOT / "params.yaml"), ("attack", ATTACK)])
def test_reports_name_what_draws_them(stage: str, config: Path) -> None:
    settings = experiment_of(load(config)).settings
    drawn_by = [package_of(settings), package_of(reporting), Path("reports/templates")]
    assert missing(stage, drawn_by) == set()


def test_whatever_is_named_is_there() -> None:
    made = {Path(path) for stage in PIPELINE.values() for path in stage["outs"] if isinstance(path, str)}
    for stage in PIPELINE.values():
        code = [Path(one) for one in stage["deps"] if Path(one) not in made and not one.startswith("data/")]
        assert [one for one in code if not (ROOT / one).exists()] == []


def test_the_stages_are_those_of_the_plan_one_after_the_other() -> None:
    settings = load(ROOT / "params.yaml")
    stages = [*experiment_of(settings).plan(settings).stages, "report"]
    assert [*PIPELINE][: len(stages)] == stages
    for stage, following in itertools.pairwise(stages):
        (made,) = PIPELINE[stage]["outs"]
        assert made == f"stages/{settings.name}/{stage}"
        assert made in PIPELINE[following]["deps"]


def test_clients_depend_on_every_setting_of_federations() -> None:
    written = yaml.safe_load((ROOT / "params.yaml").read_text())
    parameters = set(PIPELINE["clients"]["params"])
    assert parameters == {"name", *FederationSettings.model_fields} - {"run"}
    for stage in PIPELINE.values():
        assert set(stage.get("params", [])) <= set(written)
