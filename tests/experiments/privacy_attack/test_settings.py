from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.contract import load
from fedfisher_core.experiments.privacy_attack.settings import AttackSettings
from fedfisher_core.settings.reading import validate


def attack(**changes: Any) -> AttackSettings:
    return validate(AttackSettings, changes)


def loaded(path: Path, overrides: Sequence[str] = ()) -> AttackSettings:
    settings = load(path, overrides)
    assert isinstance(settings, AttackSettings)
    return settings


def test_every_label_has_a_federation_whose_first_client_holds_it() -> None:
    federations = list(attack(threat={"target_labels": [3, 5], "clients": 4, "extra_images": 7}).victims())
    assert [one.target_label for one in federations] == [3, 5]
    for one in federations:
        (cell,) = {cell.model_copy(update={"seed": 0}) for cell in one.settings.seeded_settings()}
        assert (cell.scheme, cell.clients) == ("target", 4)
        assert one.settings.partition.target_label == one.target_label
        assert one.settings.partition.target_extra == 7
        assert one.settings.privacy is None


def test_the_number_of_uploads_is_bounded() -> None:
    with pytest.raises(InputError, match="6 federations of 10,000 clients with 5 methods are 300,000 uploads"):
        attack(threat={"clients": 10_000})


def test_the_server_holds_no_validation_images() -> None:
    assert all(one.settings.data.validation_size == 0 for one in attack().victims())


def test_with_differential_privacy_each_method_has_clients_of_its_own() -> None:
    federations = list(
        attack(
            methods={"fedavg": {}, "fedfisher_diag": {}},
            threat={"target_labels": [1]},
            privacy={"epsilon": ["none", 2, 8], "delta": 1e-4},
        ).victims()
    )
    assert [(one.epsilon, tuple(one.settings.methods)) for one in federations] == [
        (None, ("fedavg", "fedfisher_diag")),
        (2, ("fedavg",)),
        (2, ("fedfisher_diag",)),
        (8, ("fedavg",)),
        (8, ("fedfisher_diag",)),
    ]
    for one in federations[1:]:
        assert one.settings.privacy is not None
        assert (one.settings.privacy.epsilon, one.settings.privacy.delta) == (one.epsilon, 1e-4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"threat": {"auxiliary_clients": [0, 1]}}, "auxiliary_clients=.*allowed: of 1 to 4.*target label"),
        ({"threat": {"auxiliary_clients": [5]}}, "auxiliary_clients=.*allowed: of 1 to 4"),
        ({"threat": {"auxiliary_clients": []}}, "auxiliary_clients=.*at least one"),
        ({"threat": {"clients": 1}}, "threat.clients=1"),
        ({"threat": {"target_labels": []}}, "threat.target_labels"),
        ({"threat": {"target_labels": [2, 2]}}, "threat.target_labels=.*differ"),
        ({"privacy": {"epsilon": [0]}}, "privacy.epsilon"),
        ({"privacy": {"epsilon": [1, 1.0]}}, "privacy.epsilon=.*differ"),
        ({"inversion": {"factors": ["all", "outptus"]}}, "inversion.factors.*outptus.*'all'.*'outputs'.*'relative'"),
        ({"inversion": {"factors": []}}, "inversion.factors"),
        (
            {"inversion": {"factors": ["all", "outputs", "all"]}},
            r"inversion.factors=\['all', 'outputs', 'all'\]: .*differ",
        ),
        ({"run": {"min_clients": 3}}, "run.min_clients=3"),
        ({"train": {"objective": ["plain", "fedprox"]}}, r"train\.objective=\['plain', 'fedprox'\]; allowed: one"),
        ({"gan": {"wdth": 3}}, "unknown setting 'gan.wdth'; did you mean 'width'"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        attack(**changes)


def test_all_factors_are_compared_unless_others_are_asked_for() -> None:
    assert attack().inversion.factors == ("all",)
    chosen = attack(inversion={"factors": "outputs"})
    assert chosen.inversion.factors == ("outputs",)
    assert chosen.model_dump(mode="json")["inversion"]["factors"] == ["outputs"]


def test_all_clients_may_minimise_another_objective_than_the_plain_one() -> None:
    (one, *_) = attack(train={"objective": "fedprox"}).victims()
    assert {cell.objective for cell in one.settings.seeded_settings()} == {"fedprox"}


def test_a_file_is_read_and_overridden(tmp_path: Path) -> None:
    path = tmp_path / "attack.yaml"
    path.write_text("experiment: privacy_attack\nname: mine\nthreat: {target_labels: 4}\n")
    assert loaded(path).threat.target_labels == (4,)
    changed = loaded(path, ["gan.width=8"])
    assert changed.gan.width == 8
    assert changed.name.startswith("mine-")
