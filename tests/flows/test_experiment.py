"""What Prefect takes as parameters of a deployment, by the schema that it keeps of them."""

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from prefect.utilities.callables import parameter_schema

from fedfisher_core.engine.errors import InputError, OutputError
from fedfisher_core.engine.failures import Failure
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.experiments.privacy_attack.settings import AttackSettings
from flows import experiment
from flows.experiment import flow_of, resolve_settings, run_name
from tests.configs import CONFIGS, ROOT

FILES = [*CONFIGS, ROOT / "params.yaml"]


@cache
def validator(experiment: str) -> Draft202012Validator:
    """What Prefect's server asks before a run of an experiment is made."""
    return Draft202012Validator(parameter_schema(flow_of(experiment).fn).model_dump())


def refusals(settings: dict[str, Any]) -> list[str]:
    """Name the places that are refused."""
    found = validator(settings.get("experiment", "benchmark")).iter_errors({"settings": settings})
    return [".".join(map(str, error.path)) for error in found]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_a_file_says_is_taken_from_a_deployment(path: Path) -> None:
    assert refusals(yaml.safe_load(path.read_text())) == []


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"seeds": "one"}, "settings.seeds"),
        ({"seeds": []}, "settings.seeds"),
        ({"partition": {"alpha": ["large"]}}, "settings.partition.alpha"),
        ({"partition": {"shift": ["some"]}}, "settings.partition.shift"),
        ({"methods": [3]}, "settings.methods"),
        ({"train": {"objective": {"name": 3}}}, "settings.train.objective"),
        ({"rounds": {"server_optimiser": [3]}}, "settings.rounds.server_optimiser"),
    ],
)
def test_what_no_form_allows_is_refused_by_its_name(settings: dict[str, Any], place: str) -> None:
    assert refusals(settings) == [place]


DEFAULT = BenchmarkSettings()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with settings files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/few_shot.yaml").write_text("name: few\nseeds: [5]\n")
    (tmp_path / "configs/attack.yaml").write_text("experiment: privacy_attack\nname: attack\n")
    return tmp_path


def test_a_file_that_is_named_takes_the_place_of_the_settings(checkout: Path) -> None:
    assert resolve_settings(DEFAULT, None, default=DEFAULT) is DEFAULT
    found = resolve_settings(DEFAULT, "few_shot", default=DEFAULT)
    assert (found.name, found.seeds) == ("few", (5,))


def test_without_settings_and_a_file_a_run_is_that_of_params_yaml(checkout: Path) -> None:
    (checkout / "params.yaml").write_text("name: mine\nseeds: [7]\n")
    found = resolve_settings(DEFAULT, None, default=DEFAULT)
    assert (found.name, found.seeds) == ("mine", (7,))
    # Settings that are given count, also where they are the defaults.
    for given in (DEFAULT.model_copy(update={"seeds": (1,)}), BenchmarkSettings()):
        assert resolve_settings(given, None, default=DEFAULT) is given
    # That file is of another experiment than an attack.
    attack = AttackSettings()
    assert resolve_settings(attack, None, default=attack) is attack


def test_prefect_names_a_run_after_what_it_runs(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (checkout / "params.yaml").write_text("name: mine\n")
    for given, name in (
        ({"settings": BenchmarkSettings()}, "mine"),
        ({"settings": BenchmarkSettings(name="own")}, "own"),
        ({"settings": BenchmarkSettings(), "config": "few_shot"}, "few_shot"),
        ({"settings": AttackSettings()}, AttackSettings().name),
    ):
        monkeypatch.setattr("flows.experiment.flow_run", SimpleNamespace(parameters=given))
        assert run_name() == name


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            "few_sht",
            r"config='few_sht': no file in configs/ has this name; did you mean 'few_shot'\? allowed: attack, ",
        ),
        ("../few_shot", r"config='\.\./few_shot': no file in configs/"),
        ("attack", "config='attack' is of the experiment 'privacy_attack'; allowed: files of 'benchmark'"),
    ],
)
def test_a_name_that_is_no_file_of_the_experiment_is_refused(checkout: Path, config: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        resolve_settings(DEFAULT, config, default=DEFAULT)


def test_settings_and_a_file_exclude_each_other(checkout: Path) -> None:
    with pytest.raises(InputError, match="config='few_shot' with settings; allowed: one of them"):
        resolve_settings(DEFAULT.model_copy(update={"seeds": (1,)}), "few_shot", default=DEFAULT)


def test_the_form_begins_with_what_most_people_set() -> None:
    schema = validator("benchmark").schema
    assert list(schema["properties"]) == ["settings", "config"]
    fields = list(schema["definitions"]["BenchmarkSettings"]["properties"])
    assert fields[:5] == ["name", "seeds", "data", "partition", "methods"]
    assert set(fields) == set(BenchmarkSettings.model_fields)


def test_tracebacks_of_failed_jobs_are_kept_where_recording_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = {"train": Failure("train", "no paper", "Traceback: the printer is empty", by_user=False)}
    work = SimpleNamespace(
        agenda=SimpleNamespace(found={}, missing=[]),
        outcome=SimpleNamespace(failed=failed, artifacts={}),
        rows=["a row"],
        folder=tmp_path,
        settings=SimpleNamespace(name="mine"),
    )

    def gone(*_: Any) -> None:
        raise OutputError("MLflow is gone")

    monkeypatch.setattr(experiment, "prepare", lambda settings: work)
    monkeypatch.setattr(experiment, "compute_missing", lambda work: None)
    monkeypatch.setattr(experiment, "is_unchanged", lambda work: False)
    monkeypatch.setattr(experiment, "publish", gone)
    with pytest.raises(OutputError, match="MLflow is gone"):
        experiment.run_experiment(DEFAULT)
    assert "the printer is empty" in (tmp_path / "failed.log").read_text()
