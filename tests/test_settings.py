from pathlib import Path
from typing import Any

import pytest
import yaml

from fedfisher_core.errors import InputError
from fedfisher_core.settings import Cell, Settings, experiment_of, load_settings, nearest, parse_settings
from fedfisher_core.theory.settings import load_two_layer

ROOT = Path(__file__).parents[1]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text("name: small\nseeds: [0]\nmethods: [fedavg, regmean]\ntrain: {epochs: 2}\n")
    return path


def test_the_default_benchmark_is_the_default_settings() -> None:
    assert load_settings(ROOT / "params.yaml") == Settings()


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_configuration_loads_under_its_own_name(path: Path) -> None:
    load = load_two_layer if experiment_of(path) == "two_layer" else load_settings
    assert load(path).name == path.stem


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
    with pytest.raises(InputError, match=r"experiment=.*allowed: benchmark, two_layer"):
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


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({"seeds": []}, "seeds=[]"),
        ({"seeds": [1, 1]}, "seeds=[1, 1]: values must differ"),
        ({"data": {"dataset": ["mnist", "mnist"]}}, "data.dataset=['mnist', 'mnist']: values must differ"),
        ({"partition": {"alpha": [0.1, 0.1]}}, "partition.alpha=[0.1, 0.1]: values must differ"),
        ({"fisher": {"backend": "curvlinops"}}, "fisher.backend='curvlinops'"),
        (
            {"fisher": {"backend": "nngeometry", "estimator": "empirical"}},
            "fisher.estimator='empirical' with fisher.backend='nngeometry'; allowed: 'exact'",
        ),
        ({"wire": {"budget": 0}}, "wire.budget"),
        ({"wire": {"factor_bits": 1}}, "wire.factor_bits=1"),
        ({"seeds": [-1]}, "seeds.0=-1"),
        ({"name": "a/b"}, "name='a/b'"),
        ({"name": ""}, "name=''"),
        ({"train": {"epochs": 0}}, "train.epochs=0"),
        ({"train": {"epochs": 3, "steps": 10}}, "train.epochs=3 with train.steps=10; allowed: one of them"),
        ({"train": {"momentum": 1}}, "train.momentum=1"),
        ({"train": {"learning_rate": float("nan")}}, "train.learning_rate=nan"),
        ({"train": {"learning_rate": "fast"}}, "train.learning_rate='fast'"),
        ({"partition": {"alpha": [0.1, 0]}}, "partition.alpha.1=0"),
        ({"partition": {"scheme": "dirichlet"}}, "partition.scheme.0='dirichlet'"),
        ({"partition": {"scheme": "column"}}, "partition.column must be set"),
        ({"partition": {"column": "writer"}}, "partition.column must be set"),
        ({"data": {"validation_size": -1}}, "data.validation_size=-1"),
        ({"methods": {}}, "methods={}"),
        ({"methods": {"fedavg": 3}}, "methods.fedavg=3"),
        ({"run": {"runner": "dask"}}, "run.runner='dask'"),
        ({"run": {"min_clients": 0}}, "run.min_clients=0"),
        ({"tracking": {"mlflow": "mlruns"}}, "tracking.mlflow='mlruns': must begin with sqlite:///"),
    ],
)
def test_an_impossible_value_is_refused_with_its_key(content: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_settings(content)
    assert named in str(caught.value)


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(InputError) as caught:
        parse_settings({"train": {"epochs": 0}, "modell": {}})
    assert "train.epochs=0" in str(caught.value)
    assert "'modell'" in str(caught.value)


def test_what_is_allowed_is_listed() -> None:
    assert nearest("regmeen", ["regmean", "fedavg"]) == "did you mean 'regmean'? allowed: fedavg, regmean"
    assert nearest("xyz", ["regmean", "fedavg"]) == "allowed: fedavg, regmean"


def test_single_values_stand_for_lists_of_one() -> None:
    settings = parse_settings({"seeds": 4, "partition": {"alpha": 0.3, "clients": 7}})
    assert (settings.seeds, settings.partition.alpha, settings.partition.clients) == ((4,), (0.3,), (7,))


def test_cells_are_all_combinations() -> None:
    settings = parse_settings({"seeds": [0, 1], "partition": {"alpha": [0.1, 0.5], "clients": [5, 10]}})
    cells = settings.cells()
    assert len(cells) == len(set(cells)) == 8
    common = {"dataset": "mnist5k", "model": "lenet", "scheme": "dirichlet_client"}
    assert cells[0] == Cell(**common, alpha=0.1, clients=5, seed=0)
    assert cells[1] == Cell(**common, alpha=0.1, clients=5, seed=1)
    assert cells[-1] == Cell(**common, alpha=0.5, clients=10, seed=1)


def test_data_sets_and_schemes_are_combined_too() -> None:
    content = {"seeds": 0, "data": {"dataset": ["mnist", "cifar10"]}, "partition": {"scheme": ["iid", "paper"]}}
    cells = parse_settings(content).cells()
    assert [(cell.dataset, cell.scheme, cell.alpha) for cell in cells] == [
        (dataset, scheme, alpha)
        for dataset in ("mnist", "cifar10")
        for scheme, alpha in (("iid", None), ("paper", 0.1), ("paper", 0.5))
    ]


@pytest.mark.parametrize("scheme", ["iid", "classes"])
def test_schemes_without_alpha_have_one_cell_for_all_alphas(scheme: str) -> None:
    settings = parse_settings({"seeds": [0, 1], "partition": {"scheme": scheme, "alpha": [0.1, 0.5]}})
    assert [(cell.alpha, cell.seed) for cell in settings.cells()] == [(None, 0), (None, 1)]


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


def test_the_digest_sees_every_setting_but_the_name() -> None:
    base = Settings()
    assert base.digest() == base.model_copy(update={"name": "other"}).digest()
    assert base.digest() != parse_settings({"train": {"epochs": 31}}).digest()
    assert base.digest() != parse_settings({"methods": {"fedfisher_diag": {"steps": 1}}}).digest()


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


def test_a_cell_is_labelled_for_people() -> None:
    common = {"dataset": "mnist", "model": "mlp", "clients": 5, "seed": 2}
    assert Cell(**common, scheme="paper", alpha=0.1).label == "mnist mlp paper alpha=0.1 clients=5 seed=2"
    assert Cell(**common, scheme="iid", alpha=None).label == "mnist mlp iid clients=5 seed=2"
