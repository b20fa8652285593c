from pathlib import Path

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.contract import load
from fedfisher_core.experiments.fedfish_toy.settings import FedFishToySettings, RegressionGrid
from flows import cli
from flows.cli import main

REFUSED = [
    ("toy.overlap=1", r"unknown setting 'toy.overlap'; did you mean 'overlaps'?"),
    ("toy.overlaps=[0, 1]", "toy.overlaps=[0, 1]: allowed: decreasing numbers, from full overlap towards none"),
    ("toy.overlaps=[1.5]", "toy.overlaps.0=1.5"),
    ("toy.overlaps=[-0.1]", "toy.overlaps.0=-0.1"),
    ("toy.overlaps=[]", "toy.overlaps=[]"),
    ("toy.epochs=[5, 5]", "toy.epochs=[5, 5]: allowed: increasing numbers"),
    ("toy.epochs=[0]", "toy.epochs.0=0"),
    ("toy.seeds=[1, 0]", "toy.seeds=[1, 0]: allowed: increasing numbers"),
    ("toy.clients=1", "toy.clients=1"),
    ("toy.function=line", "toy.function='line': Input should be 'sine' or 'chirp'"),
    ("toy.widths=[4, 4]", "toy.widths"),
    ("toy.learning_rate=0", "toy.learning_rate=0"),
    ("toy.noise=.nan", "toy.noise=nan"),
    ("toy.points=1", "toy.points=1"),
    ("toy.widths=[4, 100000, 100]", "widths=[4, 100000, 100] with clients=2 need 20,800,000 weights"),
    ("toy.samples=1000000", "clients=2 with samples=1000000 have 2,000,000 samples; allowed: up to 1,000,000"),
    ("run.device=cuda", "unknown setting 'run.device'"),
    ("methods=[fedavg]", "unknown setting 'methods'"),
]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text("experiment: fedfish_toy\nname: small\ntoy: {overlaps: [1, 0.25], seeds: [1, 2]}\n")
    return path


def test_what_a_file_leaves_out_has_its_default(config: Path) -> None:
    settings = load(config)
    assert isinstance(settings, FedFishToySettings)
    assert settings.toy == RegressionGrid(overlaps=(1.0, 0.25), seeds=(1, 2))
    assert settings.run == FedFishToySettings().run


def test_overrides_change_settings_and_the_name(config: Path) -> None:
    changed = load(config, ["toy.epochs=[1, 5]", "toy.function=chirp"])
    assert isinstance(changed, FedFishToySettings)
    assert changed.toy == RegressionGrid(overlaps=(1.0, 0.25), seeds=(1, 2), epochs=(1, 5), function="chirp")
    assert changed.name == f"small-{changed.digest()}"


@pytest.mark.parametrize(("override", "message"), REFUSED)
def test_an_impossible_override_is_refused_with_its_key(config: Path, override: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load(config, [override])
    assert message in str(caught.value)


@pytest.mark.parametrize(("override", "message"), REFUSED[1:3])
def test_the_command_refuses_it_with_2(
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    override: str,
    message: str,
) -> None:
    # The command sets these for its own process, which here is that of all tests.
    monkeypatch.setattr(cli, "_ENVIRONMENT", {})
    monkeypatch.chdir(config.parent)
    with pytest.raises(SystemExit) as caught:
        main(["run", "toy.yaml", "--set", override])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err
    assert not (config.parent / "artifacts").exists()


def test_settings_survive_their_yaml(config: Path, tmp_path: Path) -> None:
    settings = load(config, ["report.notes=größer"])
    copy = tmp_path / "copy.yaml"
    copy.write_text(settings.to_yaml())
    assert load(copy) == settings
