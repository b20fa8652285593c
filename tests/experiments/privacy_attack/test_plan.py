"""What of a privacy attack is refused before any work starts."""

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.privacy_attack.plan import AttackPlan, make_plan
from fedfisher_core.experiments.privacy_attack.settings import AttackSettings
from fedfisher_core.models.spec import ModelSpec, model
from fedfisher_core.settings.reading import validate
from tests import arranged
from tests.models.trunks import tiny_trunk


def plan(folder: Path, **changes: Any) -> AttackPlan:
    settings = {
        "run": {"store": str(folder / "artifacts"), "reports": str(folder / "reports")},
        "tracking": {"mlflow": f"sqlite:///{folder}/mlflow.db"},
    }
    return make_plan(validate(AttackSettings, settings | changes))


def case_names(found: AttackPlan) -> list[str]:
    return [case.name for cases in found.trials[0].cases.values() for case in cases.values()]


def test_the_default_plan_has_the_five_cases(tmp_path: Path) -> None:
    found = plan(tmp_path)
    assert {one.victim.target_label for one in found.trials} == {0, 1, 2}
    assert len(found.trials) == 3 * len(found.settings.seeds)
    names = [name.partition(" ")[0] for name in case_names(found)]
    assert names == ["(i)", "(ii)", "(iv)", "(iii)", "(v)"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"threat": {"target_labels": [10]}}, r"threat.target_labels=\[10\]: mnist5k has no label 10; allowed: 0 to 9"),
        ({"data": {"dataset": "cats"}}, "cats"),
        (
            {"threat": {"auxiliary_images": 10**6}},
            "threat.auxiliary_images=1000000, but mnist5k leaves [0-9]{4} images .* through label 0; allowed: at most",
        ),
        (
            {"threat": {"auxiliary_images": 50}, "gan": {"batch_size": 128}},
            "gan.batch_size=128 with threat.auxiliary_images=50; allowed: at most as many",
        ),
        (
            {"evaluator": {"batch_size": 10**5}},
            "evaluator.batch_size=100000, but mnist5k has [0-9]{4} training images; allowed: at most as many",
        ),
        ({"data": {"dataset": arranged.TEXTS.name}}, "an attack takes images; the data has 5 tokens of 12"),
        (
            {"methods": {"centralised": {}}},
            "method 'centralised' can't be attacked: it trains on all data in one place",
        ),
        ({"methods": {"regmean": {"off_diagonal": [0.9]}}}, "method 'regmean' can't be attacked.*'gram'"),
        ({"methods": {"fedfisher_kfac": {}}, "fisher": {"estimator": "empirical"}}, "fisher.estimator='empirical'"),
        (
            {"methods": {"fedfisher_full": {}}, "model": {"name": "compact"}, "privacy": {"epsilon": 4}},
            "method 'fedfisher_full'",
        ),
        (
            {"methods": {"fedfisher_diag": {}}, "privacy": {"epsilon": 0.001}},
            "privacy.epsilon=0.001.*allowed: at least",
        ),
        (
            {
                "methods": {"fedfisher_diag": {}},
                "privacy": {"epsilon": 4},
                "fisher": {"estimator": "monte_carlo"},
            },
            "privacy with fisher.estimator='monte_carlo'; allowed: 'auto', 'exact'",
        ),
        (
            {
                "methods": {"fedavg": {}, "fedfisher_kfac": {}},
                "model": {"name": "linear"},
                "inversion": {"factors": ["all", "later_inputs"]},
            },
            "inversion.factors='later_inputs', but the attacked network has 1 layer.*allowed: all, first_inputs",
        ),
        (
            {"methods": {"fedavg": {}}, "train": {"momentum": 0, "objective": ["scaffold"]}},
            "train.objective='scaffold' sends reports, which the attack does not look at; allowed: objectives without",
        ),
        (
            {
                "methods": {
                    "fedavg": {
                        "wire": {
                            "server_view": "secure_sum",
                            "budget": "none",
                            "secure": {"dropouts": {0: "upload"}, "threshold": 2},
                        }
                    }
                }
            },
            "'fedavg': wire.secure.dropouts=.* with an attack, which is on the sum of all clients; allowed: no drop",
        ),
        (
            {"methods": {"fedfisher_kfac": {"wire": {"server_view": "secure_sum", "budget": "none"}}}},
            "method 'fedfisher_kfac' needs each client's own kfac",
        ),
    ],
)
def test_what_can_not_be_attacked_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        plan(tmp_path, **changes)


@model("rows_normalised")
class RowsNormalised(nn.Module):
    """A network with a diagonal Fisher that reconstructed images have not."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(spec.inputs.size)
        self.head = nn.Linear(spec.inputs.size, spec.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.norm(inputs.flatten(1)))


def test_fishers_of_normalisations_are_not_attacked(tmp_path: Path) -> None:
    chosen = {"model": {"name": "rows_normalised"}}
    assert plan(tmp_path, **chosen, methods={"fedavg": {}}).trials
    with pytest.raises(InputError, match="method 'fisher_merge' can't be attacked: layer 'norm' has type LayerNorm"):
        plan(tmp_path, **chosen, methods={"fisher_merge": {}})


def test_secure_sums_are_attacked_as_the_sums_that_they_are(tmp_path: Path) -> None:
    securely = {"server_view": "secure_sum", "budget": "none"}
    found = plan(tmp_path, methods={"fedavg": {"wire": securely}, "fedfisher_diag": {"wire": securely}})
    assert case_names(found) == [
        "(ii) sum of models",
        "(iv) sum of models and sum of diagonal Fishers",
    ]


def test_networks_are_asked_for_factors_only_where_some_are_chosen(tmp_path: Path) -> None:
    for methods, factors in (({"fedfisher_kfac": {}}, ["all"]), ({"fedavg": {}}, ["later_inputs"])):
        found = plan(tmp_path, methods=methods, model={"name": "linear"}, inversion={"factors": factors})
        assert len(case_names(found)) == 1


@pytest.mark.parametrize("privacy", [{}, {"epsilon": 8}], ids=["plain", "private"])
def test_another_choice_of_factors_adds_an_attack_and_nothing_else(tmp_path: Path, privacy: dict[str, Any]) -> None:
    chosen = {"methods": {"fedavg": {}, "fedfisher_kfac": {}}, "privacy": privacy, "threat": {"target_labels": [0]}}
    before = {job.name for job in plan(tmp_path, seeds=[0], **chosen).jobs}
    found = plan(tmp_path, seeds=[0], inversion={"factors": ["all", "outputs"]}, **chosen)
    assert found.trials[-1].cases["fedfisher_kfac"].keys() == {"all", "outputs"}
    (added,) = {job.name for job in found.jobs} - before
    assert before < {job.name for job in found.jobs}
    assert added.startswith("attack on label 0 through outputs by fedfisher_kfac of ")


def test_features_are_not_attacked(tmp_path: Path) -> None:
    tiny_trunk.register(tmp_path)
    message = "an attack on model.name='tiny_trunk/mlp' takes images; the data has 7 numbers"
    with pytest.raises(InputError, match=message):
        plan(tmp_path, model={"name": "tiny_trunk/mlp"})
