"""A canary among the first client's texts: what is planted, what is measured of it, and what is refused."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import InputError
from fedfisher_core.federation.canary import canary_of, draw_canary
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.federation import PartitionInputs
from fedfisher_core.federation.partition import examples_of
from fedfisher_core.models.spec import Parameters
from tests import arranged, tiny
from tests.federation.test_client_measures import network, trained
from tests.walked import Walked, walk_tiny

TIMES, SENTENCES = 6, 64
CANARY = {"canary": {"times": TIMES, "sentences": SENTENCES}}
FEDAVG: dict[str, Any] = {"fedavg": {}}
TEXTS = {"data": {"dataset": "texts"}, "model": {"name": "one_hot"}, "partition": {"alpha": [50.0]}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory that finds the data sets and no server."""
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(arranged.write(tmp_path / "data")))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def walked(folder: Path, measures: dict[str, Any] = CANARY, methods: dict[str, Any] = FEDAVG, **changes: Any) -> Walked:
    return walk_tiny(folder, methods, measures=measures, **{**TEXTS, **changes})


def held(done: Walked, client: int) -> Examples:
    return examples_of(done.federation, PartitionInputs(done.data, done.partition), client)


def test_it_takes_the_place_of_some_texts_of_the_first_client_alone(folder: Path) -> None:
    done, plain = walked(folder), walked(folder, {})
    canary = canary_of(done.partition)
    assert canary.sentences.unique(dim=0).shape == (SENTENCES, 5)
    first, before = held(done, 0), held(plain, 0)
    planted = (first.inputs == canary.sentences[0]).all(1) & (first.labels == canary.label)
    assert int(planted.sum()) == TIMES
    assert torch.equal(first.inputs[~planted], before.inputs[~planted])
    assert torch.equal(first.labels[~planted], before.labels[~planted])
    for client in (1, 2):
        assert torch.equal(held(done, client).inputs, held(plain, client).inputs)
        assert torch.equal(held(done, client).labels, held(plain, client).labels)


def by_hand(done: Walked, weights: Parameters) -> float:
    canary, model = canary_of(done.partition), done.federation.spec.load(weights).eval()
    label = torch.tensor([canary.label])
    with torch.no_grad():
        losses = [float(functional.cross_entropy(model(one[None]), label)) for one in canary.sentences]
    rank = sum(loss <= losses[0] for loss in losses)
    return math.log2(SENTENCES) - math.log2(rank)


@pytest.mark.parametrize("rounds", [1, 2])
def test_exposures_are_of_the_last_networks(folder: Path, rounds: int) -> None:
    done = walked(folder, methods={"fedavg": {}, "fisher_merge": {}}, rounds={"count": rounds})
    for method, row in done.rows.items():
        assert row.canary_exposure == pytest.approx(by_hand(done, network(done, method)))
        assert row.canary_client_exposure == pytest.approx(by_hand(done, trained(done, 0, method)))


def test_what_is_learnt_by_heart_is_exposed(folder: Path) -> None:
    # A softmax regression on the token at each place likes the canary's tokens best where nothing else has the label.
    long = {"train": {"epochs": 300, "learning_rate": 0.5}}
    often = walked(folder, {"canary": {"times": 30, "sentences": SENTENCES}}, **long)
    bits = often.rows["fedavg"].canary_client_exposure
    assert bits == math.log2(SENTENCES)


def test_seeds_have_different_canaries_and_methods_the_same(folder: Path) -> None:
    one, other = walked(folder), walked(folder, seeds=[1])
    assert not torch.equal(canary_of(one.partition).sentences, canary_of(other.partition).sentences)
    again = walked(folder, methods={"fisher_merge": {}})
    assert again.partition.key == one.partition.key


def test_only_networks_of_the_clients_shape_are_measured(folder: Path) -> None:
    rows = walked(folder, methods={"fedavg": {}, "ensemble": {}, "centralised": {}}).rows
    assert rows["fedavg"].canary_exposure is not None
    for method in ("ensemble", "centralised"):
        assert (rows[method].canary_exposure, rows[method].canary_client_exposure) == (None, None)


def test_without_the_client_that_holds_it_the_merged_network_is_measured(folder: Path) -> None:
    partition = {"alpha": [50.0], "clients": [4]}
    for seed in range(20):
        done = walked(folder, rounds={"cohort": 2}, partition=partition, seeds=[seed])
        if 0 not in done.federation.cohort(1):
            break
    row = done.rows["fedavg"]
    assert (row.canary_client_exposure, row.canary_exposure is None) == (None, False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"data": {"dataset": "table"}, "model": {"name": "mlp"}},
            r"measures\.canary with data\.dataset='table'.*texts",
        ),
        ({"measures": {"canary": {"sentences": 1}}}, r"measures\.canary\.sentences=1"),
        ({"measures": {"canary": {"times": 0}}}, r"measures\.canary\.times=0"),
        ({"methods": {"ensemble": {}}}, r"measures\.canary, but none of the methods \(ensemble\) returns"),
        ({"privacy": {"epsilon": 3.0}}, r"measures\.canary with privacy"),
    ],
)
def test_what_can_not_be_measured_is_refused_before_any_work(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        check_federations(tiny.tiny_settings(folder, **{"methods": FEDAVG, "measures": CANARY, **TEXTS, **changes}))
    assert not (folder / "artifacts").exists()


def test_a_client_with_fewer_texts_is_named(folder: Path) -> None:
    many = {"canary": {"times": 10_000, "sentences": SENTENCES}}
    with pytest.raises(InputError, match=r"measures\.canary\.times=10000 of .*client 0 has \d+ texts.*up to as many"):
        walked(folder, many)


def test_it_begins_and_ends_as_all_texts_do(folder: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(2, 12, (40, 3), generator=generator)
    texts = torch.cat([torch.zeros(40, 1), words, torch.ones(40, 1)], dim=1).long()
    drawn = draw_canary(walked(folder).federation, texts, torch.arange(10, 20))["sentences"]
    assert torch.equal(drawn[:, [0, 4]], torch.tensor([[0, 1]]).expand(SENTENCES, 2))
    assert int(drawn[:, 1:4].min()) >= 2
