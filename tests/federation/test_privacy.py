"""Differential privacy of the clients of a tiny benchmark."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfisher_core.client.upload import Upload
from fedfisher_core.errors import InputError
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.uploads import TENSORS
from fedfisher_core.methods.fedavg import fedavg
from fedfisher_core.methods.method import methods
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.store import Artifact, read_document, read_tensors
from tests import tiny, walked

PRIVATE = {"epsilon": 4.0, "delta": 1e-3}
FISHERS = ("fedfisher_diag", "fedfisher_kfac")


def client(folder: Path, chosen: tuple[str, ...], *, privacy: dict[str, Any] | None = PRIVATE) -> dict[str, Artifact]:
    """What the first client makes for methods, by the statistic's name."""
    settings = tiny.tiny_settings(folder, methods=chosen, privacy=privacy)
    done = walked.walk(settings, "clients")
    return {name: artifact for one in chosen for name, artifact in done.client(0, one).items()}


def looks_where_it_can(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    if server.can_validate:
        assert len(server.validation)
    return fedavg(server, uploads)


def noise(artifacts: dict[str, Artifact]) -> dict[str, Any]:
    return read_document(artifacts["weights"], "training.json")["noise"]


def same(one: Artifact, other: Artifact) -> bool:
    first, second = read_tensors(one, TENSORS), read_tensors(other, TENSORS)
    return all(torch.equal(first[name], second[name]) for name in first)


def test_what_a_client_releases_keeps_within_its_budget(workplace: Path) -> None:
    alone, together = noise(client(workplace, ("fedavg",))), noise(client(workplace, FISHERS))
    for spent in (alone, together):
        assert 0.95 * PRIVATE["epsilon"] < spent["epsilon"] <= PRIVATE["epsilon"]
    # Fishers take from the same budget, so that the training that goes with them is noisier.
    assert alone["release"] is None
    assert together["release"] > 0
    assert together["training"] > alone["training"]


def test_private_clients_are_others_than_plain_ones_and_the_same_again(workplace: Path, tmp_path: Path) -> None:
    private, plain = client(workplace, FISHERS), client(workplace, FISHERS, privacy=None)
    assert not {artifact.key for artifact in private.values()} & {artifact.key for artifact in plain.values()}
    again = client(tmp_path / "elsewhere", FISHERS)
    for name, artifact in private.items():
        assert not same(artifact, plain[name])
        assert same(artifact, again[name])


def test_private_factors_have_no_negative_eigenvalue(workplace: Path) -> None:
    for factor in read_tensors(client(workplace, FISHERS)["kfac"], TENSORS).values():
        assert torch.linalg.eigvalsh(factor.double()).min() > -1e-6 * factor.abs().max()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"methods": {"regmean": {}}}, "method 'regmean': privacy with statistic 'gram'; allowed: 'weights'"),
        ({"privacy": {"epsilon": 1e-4}, "methods": {"fedfisher_diag": {}}}, r"privacy\.epsilon=0\.0001"),
        ({"fisher": {"backend": "nngeometry"}}, r"privacy with fisher\.backend='nngeometry'; allowed: 'native'"),
        (
            {"methods": {"fedfisher_diag": {"solver": "paper"}}},
            "public_validation=false with privacy, but method 'fedf",
        ),
        ({"methods": {"fedavg": {}, "centralised": {}}}, "method 'centralised': .* a second release"),
        ({"privacy": {"epsilon": -1}}, r"privacy\.epsilon=-1"),
        ({"privacy": {"epsilon": 1, "delta": 1}}, r"privacy\.delta=1"),
    ],
)
def test_what_can_not_be_private_is_refused_by_name(workplace: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_federations(tiny.tiny_settings(workplace, **({"privacy": PRIVATE} | changes)))


def test_a_method_without_a_validation_set_is_refused_before_any_work(workplace: Path) -> None:
    settings = tiny.tiny_settings(workplace, data={"validation_size": 0}, methods={"regmean": {}})
    with pytest.raises(InputError, match=r"data\.validation_size=0, but method 'regmean' selects"):
        check_federations(settings)


def test_public_images_may_be_selected_on(workplace: Path) -> None:
    chosen = {"fedfisher_diag": {"solver": {"name": "paper", "steps": 4, "check_every": 2}}}
    settings = tiny.tiny_settings(workplace, privacy=PRIVATE, data={"public_validation": True}, methods=chosen)
    assert walked.walk(settings).rows["fedfisher_diag"].uses_validation


@pytest.mark.parametrize("public", [False, True])
def test_a_method_that_does_not_say_so_finds_private_images_withheld(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, public: bool
) -> None:
    silent = replace(methods.get("fedavg"), name="silent", function=looks_where_it_can)
    monkeypatch.setitem(methods._things, "silent", silent)
    settings = tiny.tiny_settings(
        workplace, privacy=PRIVATE, data={"public_validation": public}, methods={"silent": {}}
    )
    assert walked.walk(settings).rows["silent"].uses_validation is public


def test_the_pooled_client_alone_is_one_release(workplace: Path) -> None:
    federations = check_federations(tiny.tiny_settings(workplace, privacy=PRIVATE, methods={"centralised": {}}))
    assert set(federations.methods) == {"centralised"}


def test_a_plan_with_private_fishers_is_made(workplace: Path) -> None:
    chosen = {"fedavg": {}, "fedfisher_diag": {}, "fedfisher_kfac": {}, "ensemble": {}}
    federations = check_federations(tiny.tiny_settings(workplace, privacy=PRIVATE, methods=chosen))
    assert set(federations.methods) == set(chosen)
