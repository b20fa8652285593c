"""Settings files of all experiments, overrides, and names that keep results apart."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.experiments.contract import experiment_of, experiments, load, name_apart, own_name
from fedfisher_core.experiments.fedfish_toy.settings import FedFishToySettings
from fedfisher_core.experiments.privacy_attack.settings import AttackSettings
from fedfisher_core.experiments.two_layer.settings import TwoLayerSettings
from fedfisher_core.settings import ExperimentSettings, MethodEntry
from fedfisher_core.settings.reading import validate
from tests.configs import CONFIGS, ROOT


def benchmark(config: Path, overrides: Sequence[str] = ()) -> BenchmarkSettings:
    settings = load(config, overrides)
    assert isinstance(settings, BenchmarkSettings)
    return settings


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text("name: small\nseeds: [0]\nmethods: [fedavg, regmean]\ntrain: {epochs: 2}\n")
    return path


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_configuration_loads_under_its_own_name(path: Path) -> None:
    assert load(path).name == path.stem


def test_the_default_benchmark_is_the_default_settings_and_two_distillations() -> None:
    demo, default = load(ROOT / "params.yaml"), BenchmarkSettings()
    assert isinstance(demo, BenchmarkSettings)
    assert demo.methods.keys() - default.methods.keys() == {"gaussian_distillation", "mixture_distillation"}
    shared = {name: demo.methods[name] for name in default.methods}
    assert demo.model_copy(update={"methods": shared}) == default


@pytest.mark.parametrize("line", ["", "experiment: benchmark\n"])
def test_a_file_describes_a_benchmark_unless_it_says_otherwise(tmp_path: Path, line: str) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text(f"{line}name: plain\n")
    assert load(path) == BenchmarkSettings(name="plain")


@pytest.mark.parametrize(
    ("experiment", "kind"),
    [
        ("benchmark", BenchmarkSettings),
        ("fedfish_toy", FedFishToySettings),
        ("privacy_attack", AttackSettings),
        ("two_layer", TwoLayerSettings),
    ],
)
def test_a_file_is_of_the_experiment_that_it_names(
    tmp_path: Path, experiment: str, kind: type[ExperimentSettings]
) -> None:
    path = tmp_path / "some.yaml"
    path.write_text(f"experiment: {experiment}\n")
    settings = load(path)
    assert type(settings) is kind
    assert experiment_of(settings) is experiments.get(experiment)
    assert experiment_of(settings).settings is kind


@pytest.mark.parametrize("value", ["tow_layer", "[two_layer]", "3"])
def test_an_unknown_experiment_is_refused_with_those_that_exist(tmp_path: Path, value: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(f"experiment: {value}\n")
    with pytest.raises(
        InputError, match=r"unknown experiment .*allowed: benchmark, fedfish_toy, privacy_attack, two_layer"
    ):
        load(path)


def test_overrides_change_nested_settings(config: Path) -> None:
    settings = benchmark(
        config, ["train.epochs=7", "partition.alpha=[0.3, 2]", "train.learning_rate=1e-3", "report.title=A b"]
    )
    assert settings.train.epochs == 7
    assert settings.train.learning_rate == 0.001
    assert settings.partition.alpha == (0.3, 2.0)
    assert settings.report.title == "A b"
    assert settings.seeds == (0,)


def test_a_list_of_methods_takes_overrides_of_their_settings(config: Path) -> None:
    settings = benchmark(config, ["methods.regmean.off_diagonal=[0.5]"])
    assert {label: entry.settings for label, entry in settings.methods.items()} == {
        "fedavg": {},
        "regmean": {"off_diagonal": [0.5]},
    }


def test_an_override_of_a_default_method_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text("name: plain\n")
    settings = benchmark(path, ["methods.fedfisher_diag.steps=10"])
    assert settings.methods == BenchmarkSettings().methods | {
        "fedfisher_diag": MethodEntry.model_validate({"steps": 10})
    }


def test_methods_are_replaced_as_a_whole(config: Path) -> None:
    assert benchmark(config, ["methods=[ensemble]"]).methods == {"ensemble": MethodEntry()}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.epochs", "must have the form key=value"),
        ("=3", "must have the form key=value"),
        ("seeds.0=1", "'seeds' is a value, not a group"),
        ("seeds=[1, 2", "is not YAML"),
        ("name.first=a", "'name' is a value, not a group"),
        ("train.epoch=3", "unknown setting 'train.epoch'; did you mean 'epochs'"),
        ("train.epochs=none", "train.epochs='none'"),
        ("seeds=2024-13-45", "--set 'seeds=2024-13-45': the value is not YAML: line 1, column 1: '2024-13-45'"),
    ],
)
def test_an_impossible_override_is_refused(config: Path, override: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        benchmark(config, [override])
    assert message in str(caught.value)


def test_overridden_settings_get_a_name_of_their_own(config: Path) -> None:
    plain = benchmark(config)
    two = benchmark(config, ["train.epochs=3"])
    three = benchmark(config, ["train.epochs=4"])
    assert plain.name == "small"
    assert two.name == f"small-{two.digest()}"
    assert len({plain.name, two.name, three.name}) == 3
    assert benchmark(config, ["train.epochs=3"]).name == two.name


def test_overrides_that_change_nothing_keep_the_name(config: Path) -> None:
    assert benchmark(config, ["train.epochs=2"]) == benchmark(config)


def test_a_name_can_be_chosen(config: Path) -> None:
    assert benchmark(config, ["name=mine", "train.epochs=3"]).name == "mine"


def test_settings_survive_their_yaml(tmp_path: Path) -> None:
    settings = validate(
        BenchmarkSettings,
        {"partition": {"scheme": "column", "column": "writer"}, "report": {"notes": "größer\n\nals"}, "seeds": 3},
    )
    assert validate(BenchmarkSettings, yaml.safe_load(settings.to_yaml())) == settings


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory whose params.yaml names a benchmark."""
    (tmp_path / "params.yaml").write_text("name: small\nseeds: [0]\nmethods: [fedavg]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def small(**changes: Any) -> BenchmarkSettings:
    return validate(BenchmarkSettings, {"name": "small", "seeds": [0], "methods": ["fedavg"], **changes})


def test_other_settings_under_the_name_of_the_default_get_a_name_of_their_own(project: Path) -> None:
    assert own_name(small()) == small()
    changed = small(seeds=[1])
    assert own_name(changed).name == f"small-{changed.digest()}"
    assert own_name(changed).model_copy(update={"name": "small"}) == changed
    assert own_name(small(name="other", seeds=[1])).name == "other"
    (project / "params.yaml").unlink()
    assert own_name(changed) == changed


def test_another_experiment_may_not_have_the_name_of_the_default(project: Path) -> None:
    assert own_name(TwoLayerSettings(name="theory")).name == "theory"
    with pytest.raises(InputError, match=r"name='small' is that of params\.yaml.*allowed: others"):
        own_name(TwoLayerSettings(name="small"))


def test_changed_settings_are_named_apart_only_where_they_would_collide() -> None:
    changed = small(seeds=[1])
    assert name_apart(changed, small()).name == f"small-{changed.digest()}"
    assert name_apart(changed, small(name="other")) is changed
    assert name_apart(small(), small()) == small()
