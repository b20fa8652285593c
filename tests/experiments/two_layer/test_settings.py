from pathlib import Path

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.contract import load
from fedfisher_core.experiments.two_layer.settings import TwoLayerGrid, TwoLayerSettings


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "theory.yaml"
    path.write_text("experiment: two_layer\nname: small\ntwo_layer: {widths: [8, 16], seeds: [1, 2]}\n")
    return path


def test_what_a_file_leaves_out_has_its_default(config: Path) -> None:
    settings = load(config)
    assert settings.two_layer == TwoLayerGrid(widths=(8, 16), seeds=(1, 2))
    assert settings.run == TwoLayerSettings().run


def test_overrides_change_settings_and_the_name(config: Path) -> None:
    changed = load(config, ["two_layer.steps=[1, 5]", "two_layer.noise=0.1", "run.workers=1"])
    assert changed.two_layer == TwoLayerGrid(widths=(8, 16), seeds=(1, 2), steps=(1, 5), noise=0.1)
    assert changed.name == f"small-{changed.digest()}"
    assert load(config, ["two_layer.noise=0.1", "name=mine"]).name == "mine"
    assert load(config, ["two_layer.noise=0"]).name == "small"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("two_layer.widht=3", r"unknown setting 'two_layer\.widht'; did you mean 'widths'\?"),
        ("two_layers.widths=[3]", r"unknown setting 'two_layers'; did you mean 'two_layer'\?"),
        ("two_layer.widths=[8, 8]", r"two_layer\.widths=\[8, 8\]: allowed: increasing numbers"),
        ("two_layer.steps=[0, 1]", r"two_layer\.steps\.0=0"),
        ("two_layer.seeds=[]", r"two_layer\.seeds=\[\]"),
        ("two_layer.learning_rate=.inf", r"two_layer\.learning_rate=inf"),
        (
            "two_layer.clients=1000000",
            r"clients=1000000 with samples=20 have 20,000,000 samples",
        ),
        ("two_layer.widths=[1000000]", r"at width 1000000 need arrays of 100,000,000 numbers; allowed: up to "),
        ("train.objective=fedprox", r"unknown setting 'train'"),
        ("run.device=cuda", r"unknown setting 'run\.device'; allowed: "),
        ("report.published=A, Table 1", r"unknown setting 'report\.published'"),
        ("methods=[fedavg]", r"unknown setting 'methods'; .*allowed: experiment, name, report"),
        ("experiment=benchmark", "--set experiment=benchmark: another experiment has other settings"),
        ("two_layer", "must have the form key=value"),
    ],
)
def test_an_impossible_override_is_refused_with_its_key(config: Path, override: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(config, [override])


def test_settings_survive_their_yaml(config: Path, tmp_path: Path) -> None:
    settings = load(config, ["report.notes=größer"])
    copy = tmp_path / "copy.yaml"
    copy.write_text(settings.to_yaml())
    assert load(copy) == settings
