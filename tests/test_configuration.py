from pathlib import Path
from typing import Any

import pytest
import yaml

from fedfisher_core.configuration import experiment_of, load_experiment, load_settings, nearest, parse_settings
from fedfisher_core.errors import InputError
from fedfisher_core.experiments.attack.settings import PrivacyAttack
from fedfisher_core.experiments.two_layer.settings import TwoLayerBenchmark
from fedfisher_core.settings import Settings

ROOT = Path(__file__).parents[1]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text("name: small\nseeds: [0]\nmethods: [fedavg, regmean]\ntrain: {epochs: 2}\n")
    return path


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_configuration_loads_under_its_own_name(path: Path) -> None:
    others = {"two_layer": TwoLayerBenchmark, "privacy_attack": PrivacyAttack}
    kind = others.get(experiment_of(path))
    settings = load_settings(path) if kind is None else load_experiment(kind, path)
    assert settings.name == path.stem


@pytest.mark.parametrize("line", ["", "experiment: benchmark\n"])
def test_a_file_describes_a_benchmark_unless_it_says_otherwise(tmp_path: Path, line: str) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text(f"{line}name: plain\n")
    assert experiment_of(path) == "benchmark"
    assert load_settings(path) == parse_settings({"name": "plain"})


@pytest.mark.parametrize("value", ["tow_layer", "[two_layer]", "3"])
def test_an_unknown_experiment_is_refused_with_those_that_exist(tmp_path: Path, value: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(f"experiment: {value}\n")
    with pytest.raises(InputError, match=r"experiment=.*allowed: benchmark, privacy_attack, two_layer"):
        experiment_of(path)


def test_a_file_of_another_experiment_is_no_benchmark(tmp_path: Path) -> None:
    path = tmp_path / "theory.yaml"
    path.write_text("experiment: two_layer\n")
    with pytest.raises(InputError, match=r"theory\.yaml' has experiment='two_layer'; allowed here: benchmark"):
        load_settings(path)


@pytest.mark.parametrize(
    ("content", "key", "hint"),
    [
        ({"sead": [1]}, "'sead'", "'seeds'"),
        ({"train": {"epoch": 3}}, "'train.epoch'", "'epochs'"),
        ({"partition": {"aplha": 0.1}}, "'partition.aplha'", "'alpha'"),
        ({"run": {"tracking": 1}}, "'run.tracking'", "allowed: "),
        ({"report": {"titel": "x"}}, "'report.titel'", "'title'"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(content: dict[str, Any], key: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_settings(content)
    assert f"unknown setting {key}" in str(caught.value)
    assert hint in str(caught.value)


def test_a_key_like_none_is_answered_with_what_is_allowed() -> None:
    with pytest.raises(InputError, match=r"unknown setting 'train\.zzz'; allowed: batch_size, epochs"):
        parse_settings({"train": {"zzz": 1}})


def test_what_is_allowed_is_listed() -> None:
    assert nearest("regmeen", ["regmean", "fedavg"]) == "did you mean 'regmean'? allowed: fedavg, regmean"
    assert nearest("xyz", ["regmean", "fedavg"]) == "allowed: fedavg, regmean"


def test_overrides_change_nested_settings(config: Path) -> None:
    settings = load_settings(
        config, ["train.epochs=7", "partition.alpha=[0.3, 2]", "train.learning_rate=1e-3", "report.title=A b"]
    )
    assert settings.train.epochs == 7
    assert settings.train.learning_rate == 0.001
    assert settings.partition.alpha == (0.3, 2.0)
    assert settings.report.title == "A b"
    assert settings.seeds == (0,)


def test_a_list_of_methods_takes_overrides_of_their_settings(config: Path) -> None:
    settings = load_settings(config, ["methods.regmean.off_diagonal=[0.5]"])
    assert settings.methods == {"fedavg": {}, "regmean": {"off_diagonal": [0.5]}}


def test_an_override_of_a_default_method_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text("name: plain\n")
    settings = load_settings(path, ["methods.fedfisher_diag.steps=10"])
    assert settings.methods == Settings().methods | {"fedfisher_diag": {"steps": 10}}


def test_methods_are_replaced_as_a_whole(config: Path) -> None:
    assert load_settings(config, ["methods=[ensemble]"]).methods == {"ensemble": {}}


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
    ],
)
def test_an_impossible_override_is_refused(config: Path, override: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load_settings(config, [override])
    assert message in str(caught.value)


def test_overridden_settings_get_a_name_of_their_own(config: Path) -> None:
    plain = load_settings(config)
    two = load_settings(config, ["train.epochs=3"])
    three = load_settings(config, ["train.epochs=4"])
    assert plain.name == "small"
    assert two.name == f"small-{two.digest()}"
    assert len({plain.name, two.name, three.name}) == 3
    assert load_settings(config, ["train.epochs=3"]).name == two.name


def test_overrides_that_change_nothing_keep_the_name(config: Path) -> None:
    assert load_settings(config, ["train.epochs=2"]) == load_settings(config)


def test_a_name_can_be_chosen(config: Path) -> None:
    assert load_settings(config, ["name=mine", "train.epochs=3"]).name == "mine"


def test_settings_survive_their_yaml(tmp_path: Path) -> None:
    settings = parse_settings(
        {"partition": {"scheme": "column", "column": "writer"}, "report": {"notes": "größer\n\nals"}, "seeds": 3}
    )
    assert parse_settings(yaml.safe_load(settings.to_yaml())) == settings


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must hold a mapping of settings, not NoneType"),
        (b"- 1", "must hold a mapping of settings, not list"),
        (b"a: [", "can't be read"),
        (b"\xff\xfe\xfa", "can't be read"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_settings(path)
    assert message in str(caught.value)
    assert "bad.yaml" in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.yaml' does not exist"):
        load_settings(tmp_path / "absent.yaml")
