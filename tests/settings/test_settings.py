from typing import Annotated, Any

import pytest
from pydantic import Field, ValidationError

from fedfisher_core.engine.errors import InputError, anonymous
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.settings import FisherSettings, MethodEntry, SeededSetting
from fedfisher_core.settings.choices import choose, settings_of
from fedfisher_core.settings.fishers import FEW_CLASSES
from fedfisher_core.settings.reading import validate


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
        (
            {"fisher": {"backend": "nngeometry", "weight_sharing": "reduce"}},
            "fisher.weight_sharing='reduce' with fisher.backend='nngeometry'; allowed: 'expand'",
        ),
        (
            {"fisher": {"backend": "nngeometry", "estimator": "truncated"}},
            "fisher.estimator='truncated' with fisher.backend='nngeometry'; allowed: 'exact'",
        ),
        ({"fisher": {"tolerance": 0}}, "fisher.tolerance=0"),
        ({"fisher": {"tolerance": 1}}, "fisher.tolerance=1"),
        ({"wire": {"budget": 0}}, "wire.budget"),
        ({"wire": {"factor_bits": 1}}, "wire.factor_bits=1"),
        ({"wire": {"factor_bits": 5}}, "wire.factor_bits=5 without a method whose format is 'paper'; allowed: 9"),
        (
            {"methods": {"a": {"method": "fedavg", "wire": {"factor_bits": 5}}}},
            "methods.a.wire.factor_bits=5 with format='fedfisher'; allowed: with 'paper' alone",
        ),
        (
            {"fisher": {"samples": 3}},
            "fisher.samples=3 with fisher.estimator='auto'; allowed: 1, or the estimator monte_carlo",
        ),
        (
            {"fisher": {"tolerance": 0.1, "estimator": "exact"}},
            "fisher.tolerance=0.1 with fisher.estimator='exact'; allowed: 0.01, or the estimator auto or truncated",
        ),
        (
            {"fisher": {"directions": None, "estimator": "empirical"}},
            "fisher.directions=None with fisher.estimator='empirical'; allowed: 16, or the estimator auto or truncated",
        ),
        ({"data": {"public_validation": True}}, "data.public_validation=true without privacy, which alone asks for it"),
        ({"seeds": [-1]}, "seeds.0=-1"),
        ({"name": "a/b"}, "name='a/b'"),
        ({"name": ""}, "name=''"),
        ({"train": {"epochs": 0}}, "train.epochs=0"),
        ({"train": {"epochs": 3, "steps": 10}}, "train.epochs=3 with train.steps=10; allowed: one of them"),
        ({"skip": [{}]}, "skip=[{}] leaves no setting"),
        ({"skip": [{"client": 5}]}, "unknown setting 'skip.0.client'; did you mean 'clients'"),
        ({"train": {"momentum": 1}}, "train.momentum=1"),
        ({"train": {"learning_rate": float("nan")}}, "train.learning_rate=nan"),
        ({"train": {"learning_rate": "fast"}}, "train.learning_rate='fast'"),
        ({"partition": {"alpha": [0.1, 0]}}, "partition.alpha.1=0"),
        ({"partition": {"scheme": "dirichlet"}}, "partition.scheme.0='dirichlet'"),
        ({"partition": {"scheme": "column"}}, "partition.column must be set"),
        ({"partition": {"column": "writer"}}, "partition.column must be set"),
        ({"data": {"validation_size": -1}}, "data.validation_size=-1"),
        ({"data": {"held_out": 0}}, "data.held_out=0"),
        ({"train": {"objective": []}}, "train.objective=[]: allowed: names that differ"),
        ({"train": {"objective": 3}}, "train.objective=3: allowed: names that differ"),
        (
            {"train": {"objective": ["fedprox", "fedprox"]}},
            "train.objective=['fedprox', 'fedprox']: allowed: names that",
        ),
        ({"train": {"objective": ["plain", {"mu": 1}]}}, "train.objective=['plain', {'mu': 1}]: allowed: names that"),
        (
            {"train": {"objective": {"a": {"name": "plain", "train": {"learning_rate": -1}}}}},
            "train.objective.a.train.learning_rate=-1",
        ),
        (
            {"train": {"objective": {"a": {"name": "plain", "train": {"epochs": 1, "steps": 2}}}}},
            "epochs=1 with steps=2; allowed: one of them",
        ),
        (
            {"train": {"objective": {"plain": {"train": {"epochs": 1}}}}},
            "label 'plain' has its own train; allowed: another label, such as slow: {name: plain, train:",
        ),
        ({"train": {"objective": {"a": 3}}}, "train.objective.a=3: must be a mapping of settings"),
        ({"train": {"objective": {" a": {}}}}, "train.objective: name ' a': allowed: at least one character"),
        (
            {"train": {"objective": {"plain": {"name": "fedprox"}}}},
            "label 'plain' stands for 'fedprox'; allowed: 'plain'",
        ),
        ({"data": {"examples": 0}}, "data.examples=0"),
        (
            {"data": {"held_out": 9}, "report": {"published": "a, Table 1"}},
            "report.published with data.held_out=9: published numbers are of test images; allowed: one of them",
        ),
        ({"methods": {}}, "methods={}"),
        ({"methods": {"fedavg": 3}}, "methods.fedavg=3"),
        ({"run": {"runner": "ray"}}, "run.runner='ray'"),
        ({"run": {"dask": {"scheduler": "10.0.0.1:8786"}}}, "run.dask.scheduler='10.0.0.1:8786'"),
        ({"run": {"min_clients": 0}}, "run.min_clients=0"),
        (
            {"partition": {"clients": 10**9}},
            "partition.clients.0=1000000000: Input should be less than or equal to 10000",
        ),
        ({"train": {"epochs": 10**12}}, "train.epochs=1000000000000: Input should be less than or equal to 1000000"),
        ({"privacy": {"epsilon": 1e308}}, "privacy.epsilon=1e+308"),
        (
            {"partition": {"scheme": "iid", "classes_per_client": 3}},
            "partition.classes_per_client=3 with partition.scheme=['iid']; allowed: with classes alone",
        ),
        (
            {"partition": {"target_extra": 5}},
            "partition.target_extra=5 with partition.scheme=['dirichlet_client']; allowed: with target alone",
        ),
        ({"partition": {"alpha": 1e-300}}, "partition.alpha.0=1e-300: Input should be greater than or equal to 0.001"),
        ({"run": {"timeout_seconds": 1e-9}}, "run.timeout_seconds=1e-09"),
        ({"run": {"timeout_seconds": 1e300}}, "run.timeout_seconds=1e+300"),
        ({"run": {"torch_threads": 10**9}}, "run.torch_threads=1000000000"),
        ({"run": {"store": ""}}, "run.store='': allowed: a folder"),
        ({"run": {"store": 3}}, "run.store=3: must be a folder, or s3://BUCKET/PREFIX"),
        ({"run": {"store": "gs://bucket"}}, "run.store='gs://bucket': must be a folder, or s3://BUCKET"),
        ({"run": {"store": "s3://key:hidden@bucket/x"}}, "run.store: must hold no user and no password"),
        ({"tracking": {"mlflow": "http://me:hidden@host"}}, "tracking.mlflow: must hold no user and no password"),
        ({"tracking": {"prefect_api": "https://me@host/api"}}, "tracking.prefect_api: must hold no user"),
        ({"tracking": {"mlflow": "http://admin:hidden/X@host"}}, "tracking.mlflow: must hold no user"),
        ({"tracking": {"mlflow": "HTTP://admin:hidden@host"}}, "tracking.mlflow: must hold no user"),
        ({"tracking": {"mlflow": "admin:hidden@host:5000"}}, "tracking.mlflow: must hold no user"),
        ({"tracking": {"mlflow": "sqlite://admin:hidden@host"}}, "tracking.mlflow: must hold no user"),
        ({"tracking": {"mlflow": ["http://admin:hidden@host"]}}, "tracking.mlflow: must hold no user"),
        ({"tracking": {"prefect_api": "http://a:hid\0den@host/hidden"}}, "tracking.prefect_api: must hold no user"),
        ({"run": {"store": "s3://KEY:hidden/cd@bucket"}}, "run.store: must hold no user"),
        ({"run": {"store": "S3://KEY:hidden@bucket"}}, "run.store: must hold no user"),
        (
            {"run": {"dask": {"scheduler": "tcp://host:99999"}}},
            "run.dask.scheduler='tcp://host:99999': has a port beyond",
        ),
        ({"run": {"dask": "tcp://me:hidden@host:8786"}}, "run.dask='tcp://host:8786': must be a mapping of settings"),
        ({"tracking": "http://me:hidden@host"}, "tracking='http://host': must be a mapping of settings"),
        ({"run": {"store": "s3:/bucket/x"}}, "run.store='s3:/bucket/x': has one slash after its scheme; allowed: "),
        ({"run": {"dask": {"scheduler": "tcp://me:hidden@host:8786"}}}, "run.dask.scheduler: must hold no user"),
        ({"run": {"store": "s3://bucket//x"}}, "run.store='s3://bucket//x': must be a folder, or s3://BUCKET"),
        ({"run": {"cache": {"gib": 0}}}, "run.cache.gib=0"),
        (
            {"run": {"store": "s3://bucket/x"}, "rounds": {"count": 3, "keep": 1}},
            "rounds.keep=1 with run.store='s3://bucket/x': others may read from the bucket; allowed: null",
        ),
        ({"run": {"store": "a\0b"}}, "run.store='a\\x00b': allowed: printable characters"),
        ({"run": {"reports": "x" * 256}}, "has a part of 256 bytes; allowed: up to 255 each"),
        ({"run": {"reports": "ü" * 128}}, "has a part of 256 bytes"),
        ({"run": {"reports": "x/" * 3000}}, "allowed: up to 4,000"),
        ({"name": "x" * 300}, "name='xxx"),
        ({"methods": {"": {}}}, "methods: name '': allowed: at least one character"),
        ({"methods": {"fedavg ": {}}}, "methods: name 'fedavg '"),
        ({"methods": {"a\ud800": {"method": "fedavg"}}}, "methods: name 'a\\ud800'"),
        ({"methods": {"a\nb": {"method": "fedavg"}}}, "methods: name 'a\\nb'"),
        ({"methods": {"a\u2028b": {"method": "fedavg"}}}, "methods: name 'a\\u2028b'"),
        ({"methods": {"fedavg": {"method": [1]}}}, "methods.fedavg.method=[1]"),
        ({"methods": ["fedavg", "fedavg"]}, "methods=['fedavg', 'fedavg']: allowed: names that differ"),
        ({"methods": [["fedavg"]]}, "methods=[['fedavg']]: allowed: names"),
        ({"report": {"title": "a\x1bb"}}, "report.title='a\\x1bb'"),
        (
            {
                "seeds": list(range(200)),
                "partition": {"alpha": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], "clients": [2, 3, 4, 5, 6, 7]},
            },
            "12,000 combinations of seeds, data.dataset, model.name, partition.scheme, partition.alpha, "
            "partition.clients, partition.shift, train.objective, rounds.server_optimiser; allowed: up to 10,000",
        ),
        (
            {"seeds": 0, "partition": {"clients": 10_000, "alpha": [1, 2]}},
            "7 methods with all clients in 2 seeded settings are 140,000 uploads",
        ),
        ({"tracking": {"mlflow": "mlruns"}}, "tracking.mlflow='mlruns': must begin with sqlite:///"),
    ],
)
def test_an_impossible_value_is_refused_with_its_key(content: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError) as caught:
        validate(BenchmarkSettings, content)
    assert named in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_the_path_of_a_database_may_have_an_at_sign() -> None:
    settings = validate(BenchmarkSettings, {"tracking": {"mlflow": "sqlite:////home/me@work/mlflow.db"}})
    assert settings.tracking.mlflow == "sqlite:////home/me@work/mlflow.db"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://me:X@host:4200/api", "http://host:4200/api"),
        ("HTTPS://me:X/Y@Z@host", "HTTPS://host"),
        ('Could not connect to "http://me:X Y@host/a"', 'Could not connect to "http://host/a"'),
        ("http://host:4200/api", "http://host:4200/api"),
        ("me@host", "me@host"),
    ],
)
def test_users_and_passwords_are_left_out_of_what_is_shown(text: str, shown: str) -> None:
    assert anonymous(text) == shown


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(InputError) as caught:
        validate(BenchmarkSettings, {"train": {"epochs": 0}, "modell": {}})
    assert "train.epochs=0" in str(caught.value)
    assert "'modell'" in str(caught.value)


def test_single_values_stand_for_lists_of_one() -> None:
    settings = validate(BenchmarkSettings, {"seeds": 4, "partition": {"alpha": 0.3, "clients": 7}})
    assert (settings.seeds, settings.partition.alpha, settings.partition.clients) == ((4,), (0.3,), (7,))


def test_cells_are_all_combinations() -> None:
    settings = validate(BenchmarkSettings, {"seeds": [0, 1], "partition": {"alpha": [0.1, 0.5], "clients": [5, 10]}})
    cells = settings.seeded_settings()
    assert len(cells) == len(set(cells)) == 8
    common = {"dataset": "mnist5k", "model": "lenet", "scheme": "dirichlet_client"}
    assert cells[0] == SeededSetting(**common, alpha=0.1, clients=5, seed=0)
    assert cells[1] == SeededSetting(**common, alpha=0.1, clients=5, seed=1)
    assert cells[-1] == SeededSetting(**common, alpha=0.5, clients=10, seed=1)


def test_points_can_be_left_out() -> None:
    content = {"seeds": [0, 1], "partition": {"clients": [5, 50], "alpha": [0.01, 0.1]}}
    skipped = [{"clients": 50, "alpha": 0.01}, {"seed": [1], "alpha": [0.1]}]
    cells = validate(BenchmarkSettings, content | {"skip": skipped}).seeded_settings()
    found = {(setting.clients, setting.alpha, setting.seed) for setting in cells}
    assert found == {(5, 0.01, 0), (5, 0.01, 1), (5, 0.1, 0), (50, 0.1, 0)}
    assert validate(BenchmarkSettings, {"skip": []}).seeded_settings() == BenchmarkSettings().seeded_settings()


def test_data_sets_and_schemes_are_combined_too() -> None:
    content = {"seeds": 0, "data": {"dataset": ["mnist", "cifar10"]}, "partition": {"scheme": ["iid", "paper"]}}
    cells = validate(BenchmarkSettings, content).seeded_settings()
    assert [(setting.dataset, setting.scheme, setting.alpha) for setting in cells] == [
        (dataset, scheme, alpha)
        for dataset in ("mnist", "cifar10")
        for scheme, alpha in (("iid", None), ("paper", 0.1), ("paper", 0.5))
    ]


@pytest.mark.parametrize("scheme", ["iid", "classes"])
def test_schemes_without_alpha_have_one_cell_for_all_alphas(scheme: str) -> None:
    settings = validate(BenchmarkSettings, {"seeds": [0, 1], "partition": {"scheme": scheme, "alpha": [0.1, 0.5]}})
    assert [(setting.alpha, setting.seed) for setting in settings.seeded_settings()] == [(None, 0), (None, 1)]


@pytest.mark.parametrize(
    ("given", "labels", "chosen"),
    [
        ("fedprox", ["fedprox"], {"fedprox": {}}),
        ({"name": "fedprox", "mu": 1}, ["fedprox"], {"fedprox": {"mu": 1}}),
        (["plain", {"name": "fedprox", "mu": 1}], ["plain", "fedprox"], {"plain": {}, "fedprox": {"mu": 1}}),
        ({"plain": {}, "weak": {"name": "fedprox"}}, ["plain", "weak"], {"plain": {}, "weak": {"name": "fedprox"}}),
        (
            [{"name": "moon", "train": {"steps": 5}}],
            ["moon"],
            {"moon": {"train": {"steps": 5}}},
        ),
    ],
)
def test_objectives_are_a_dimension_of_the_cells(given: Any, labels: list[str], chosen: dict[str, Any]) -> None:
    settings = validate(BenchmarkSettings, {"seeds": [0, 1], "partition": {"alpha": 1}, "train": {"objective": given}})
    assert [setting.objective for setting in settings.seeded_settings()] == [
        label for label in labels for _ in range(2)
    ]
    written = settings.model_dump(mode="json")
    assert written["train"]["objective"] == chosen
    assert validate(BenchmarkSettings, written) == settings


@pytest.mark.parametrize(
    "objective",
    [
        {"scaffold": {}},
        {"near": {"name": "fedprox", "mu": 0.1}},
        {"slow": {"name": "plain", "train": {"learning_rate": 0.1}}},
    ],
)
def test_what_was_set_of_objectives_goes_to_other_processes(objective: dict[str, Any]) -> None:
    settings = validate(BenchmarkSettings, {"train": {"objective": objective}})
    sent = settings.model_dump(exclude_unset=True)
    assert sent["train"]["objective"] == objective
    assert validate(BenchmarkSettings, sent) == settings


def test_plain_training_is_written_as_before_there_were_objectives() -> None:
    settings = validate(BenchmarkSettings, {"train": {"objective": "plain"}})
    assert "objective" not in settings.to_yaml()
    assert "objective" not in settings.shown()["train"]
    assert settings == BenchmarkSettings()
    assert settings.digest() != validate(BenchmarkSettings, {"train": {"objective": "fedprox"}}).digest()


@pytest.mark.parametrize(
    ("given", "classes", "private", "estimate"),
    [
        ({}, FEW_CLASSES, False, "exact"),
        ({}, FEW_CLASSES + 1, False, "truncated (0.01, 16 at most)"),
        ({}, 1000, True, "exact"),
        ({"backend": "nngeometry"}, 1000, False, "exact"),
        ({"estimator": "exact"}, 1000, False, "exact"),
        ({"estimator": "truncated", "tolerance": 0.1, "directions": None}, 2, False, "truncated (0.1)"),
        ({"estimator": "monte_carlo", "samples": 3}, 1000, False, "monte_carlo (3)"),
        ({"estimator": "empirical"}, 1000, False, "empirical"),
    ],
)
def test_fishers_of_few_classes_are_exact_by_default(
    given: dict[str, Any], classes: int, private: bool, estimate: str
) -> None:
    assert FisherSettings(**given).chosen(classes, private=private, on_gpu=False).estimate == estimate


@pytest.mark.parametrize(
    ("given", "on_gpu", "mebibytes"), [(None, False, 256), (None, True, 4096), (64, False, 64), (64, True, 64)]
)
def test_a_pass_has_more_memory_on_a_gpu_unless_a_setting_says_how_much(
    given: int | None, on_gpu: bool, mebibytes: int
) -> None:
    chosen = FisherSettings(memory_mib=given).chosen(10, private=False, on_gpu=on_gpu)
    assert (chosen.memory_mib, chosen.memory_limit) == (mebibytes, mebibytes * 2**20)


def test_an_exact_fisher_is_described_as_before_there_were_others() -> None:
    before = {"backend": "native", "estimator": "exact", "samples": 1, "passes": "shared", "memory_mib": 256}
    assert FisherSettings().chosen(10, private=False, on_gpu=False).described() == before
    assert FisherSettings(tolerance=0.5).chosen(10, private=False, on_gpu=False).described() == before
    truncated = {**before, "estimator": "truncated", "tolerance": 0.01, "directions": 16}
    assert FisherSettings().chosen(100, private=False, on_gpu=False).described() == truncated
    assert "tolerance" not in FisherSettings().model_dump()
    written = FisherSettings(estimator="truncated", tolerance=0.5).model_dump()
    assert FisherSettings(**written) == FisherSettings(estimator="truncated", tolerance=0.5)
    assert "directions" not in FisherSettings().model_dump()
    assert FisherSettings(directions=None).model_dump()["directions"] is None


def test_factor_bits_may_be_set_for_all_methods_or_for_one_in_the_papers_format() -> None:
    for wire, own in (
        ({"factor_bits": 5}, {"format": "paper"}),
        ({"format": "paper"}, {"factor_bits": 5}),
        ({"factor_bits": 5, "format": "paper"}, {}),
    ):
        methods = {"fedavg": {}, "a": {"method": "fedfisher_kfac", "wire": own}}
        assert validate(BenchmarkSettings, {"wire": wire, "methods": methods})


@pytest.mark.parametrize(
    "changes", [{"rounds": {"cohort": 10, "count": 2}}, {"measures": {"personalisation": {"unseen_clients": 9}}}]
)
def test_federations_that_are_skipped_limit_nothing(changes: dict[str, Any]) -> None:
    partition = {"clients": [5, 50]}
    assert validate(BenchmarkSettings, {"partition": partition, "skip": [{"clients": 5}], **changes})
    with pytest.raises(InputError, match=r"partition\.clients=5"):
        validate(BenchmarkSettings, {"partition": partition, **changes})


def test_the_digest_sees_every_setting_but_the_name() -> None:
    base = BenchmarkSettings()
    assert base.digest() == base.model_copy(update={"name": "other"}).digest()
    assert base.digest() != validate(BenchmarkSettings, {"train": {"epochs": 31}}).digest()
    assert base.digest() != validate(BenchmarkSettings, {"methods": {"fedfisher_diag": {"steps": 1}}}).digest()


def test_a_cell_is_labelled_for_people() -> None:
    common = {"dataset": "mnist", "model": "mlp", "clients": 5, "seed": 2}
    assert SeededSetting(**common, scheme="paper", alpha=0.1).label == "mnist mlp paper alpha=0.1 clients=5 seed=2"
    assert SeededSetting(**common, scheme="iid", alpha=None).label == "mnist mlp iid clients=5 seed=2"
    few = {"kind": "labels", "strength": 0.5, "classes": 2}
    assert SeededSetting(**common, scheme="iid", alpha=None, shift=few).name == (
        "mnist mlp iid labels=0.5 of 2 classes clients=5"
    )
    prox = SeededSetting(**common, scheme="iid", alpha=None, objective="fedprox")
    assert prox.label == "mnist mlp iid clients=5 objective=fedprox seed=2"


@pytest.mark.parametrize(
    "changes",
    [
        {"alpha": 0.12345671},
        {"shift": {"kind": "labels", "strength": 0.5}},
        {"shift": {"kind": "labels", "strength": 0.5, "classes": 2}},
        {"shift": {"kind": "labels", "strength": 0.50000001}},
    ],
)
def test_settings_that_differ_have_names_that_differ(changes: dict[str, object]) -> None:
    common = {"dataset": "mnist", "model": "mlp", "scheme": "paper", "clients": 5, "seed": 2, "alpha": 0.12345672}
    others = [common, {**common, "shift": {"kind": "labels", "strength": 0.5, "classes": 3}}]
    assert SeededSetting(**{**common, **changes}).name not in {SeededSetting(**other).name for other in others}


def test_a_method_s_own_settings_are_apart_from_those_of_all_methods() -> None:
    entry = MethodEntry.model_validate(
        {"method": "fedfisher_diag", "only": {"seed": 1}, "wire": {"budget": "none"}, "steps": 3}
    )
    assert (entry.method, entry.settings) == ("fedfisher_diag", {"steps": 3})
    assert entry.only.admits(SeededSetting(dataset="a", model="b", scheme="iid", alpha=None, clients=2, seed=1))
    assert entry.model_dump(mode="json")["wire"] == {"budget": "none"}
    assert MethodEntry.model_validate(entry.model_dump(mode="json")) == entry
    assert MethodEntry().model_dump(mode="json") == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": {"epochs": True}}, "epochs=True: must be no boolean"),
        ({"seeds": [0, True]}, r"seeds=\[0, True\]: must be no boolean"),
        ({"partition": {"clients": True}}, "clients=True: must be no boolean"),
        ({"methods": {"fedavg": {"wire": {"budget": True}}}}, "budget"),
        ({"wire": {"budget": "foo"}}, "wire.budget='foo': allowed: fedavg, none, or a whole number from 1"),
        ({"wire": {"budget": 0}}, "wire.budget=0: allowed: fedavg, none, or a whole number from 1"),
        ({"run": {"reports": "~/reports"}}, "run.reports='~/reports': begins with ~"),
        ({"run": {"store": "~/store"}}, "run.store='~/store': begins with ~"),
        ({"run": {"store": "s3://b/p"}}, "where BUCKET has 3 to 63 characters"),
        ({"name": "leaderboard"}, "name='leaderboard': is the leaderboard's folder"),
    ],
)
def test_slips_are_refused_in_one_line_of_the_settings_own_words(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        validate(BenchmarkSettings, changes)
    assert "\n" not in str(caught.value)


def test_true_and_false_are_what_a_switch_takes() -> None:
    settings = validate(BenchmarkSettings, {"model": {"bias": True}, "methods": {"otfusion": {"correction": [False]}}})
    assert settings.model.bias is True


def test_one_method_may_be_given_by_its_name() -> None:
    one, listed = (validate(BenchmarkSettings, {"methods": given}) for given in ("fedfish", ["fedfish"]))
    assert one == listed
    assert list(one.methods) == ["fedfish"]


def test_what_a_docstring_says_of_an_argument_describes_the_setting() -> None:
    def merge(
        server: Any, *, towards: float = 0.0, steps: Annotated[int, Field(gt=0, description="of Adam")] = 3
    ) -> None:
        """Merge.

        Args:
            towards: 0 for the median,
                1 for the mean.
            steps: more words on the same.
        """

    found = settings_of(merge, owner="method", name="merge")
    assert found.model_fields["towards"].description == "0 for the median, 1 for the mean"
    assert found.model_fields["steps"].description == "of Adam"
    assert found(steps=4).model_dump() == {"towards": 0.0, "steps": 4}
    with pytest.raises(ValidationError):
        found(steps=0)


def test_a_number_in_the_place_of_a_list_is_told_to_be_one() -> None:
    def merge(server: Any, *, factors: tuple[float, ...] = (0.1, 0.9)) -> None:
        """Merge."""

    found = settings_of(merge, owner="method", name="merge")
    with pytest.raises(InputError, match=r"^methods\.merge\.factors=0\.5: must be a list, such as \[0\.5\]$"):
        choose(found, {"factors": 0.5}, key="methods.merge")
    with pytest.raises(InputError, match=r"must be a list$"):
        choose(found, {"factors": {"a": 1}}, key="methods.merge")
