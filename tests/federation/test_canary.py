"""A canary among the first client's texts: what is planted, what is measured of it, and what is refused."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from fedfisher_core.data.layouts import Texts, Tokens
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.store import read_tensors
from fedfisher_core.federation.canary import CANARY as CANARY_FILE
from fedfisher_core.federation.canary import canary_of, draw_canary
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.federation import PartitionInputs
from fedfisher_core.federation.partition import examples_of, label_counts, validation_set
from fedfisher_core.models.spec import Parameters
from fedfisher_core.settings import CanarySettings
from tests import arranged, tiny
from tests.federation.test_client_measures import network, trained
from tests.walked import Walked, walk_tiny

TIMES, SENTENCES = 6, 64
CANARY = {"canary": {"times": TIMES, "sentences": SENTENCES}}
FEDAVG: dict[str, Any] = {"fedavg": {}}
TEXTS = {"data": {"dataset": "texts"}, "model": {"name": "one_hot"}, "partition": {"alpha": [50.0]}}


def walked(folder: Path, measures: dict[str, Any] = CANARY, methods: dict[str, Any] = FEDAVG, **changes: Any) -> Walked:
    return walk_tiny(folder, methods, measures=measures, **{**TEXTS, **changes})


def held(done: Walked, client: int) -> Examples:
    return examples_of(done.federation, PartitionInputs(done.data, done.partition), client)


def test_it_takes_the_place_of_some_texts_of_the_first_client_alone(arranged_workplace: Path) -> None:
    done, plain = walked(arranged_workplace), walked(arranged_workplace, {})
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
def test_exposures_are_of_the_last_networks(arranged_workplace: Path, rounds: int) -> None:
    done = walked(arranged_workplace, methods={"fedavg": {}, "fisher_merge": {}}, rounds={"count": rounds})
    for method, row in done.rows.items():
        assert row.canary_exposure == pytest.approx(by_hand(done, network(done, method)))
        assert row.canary_client_exposure == pytest.approx(by_hand(done, trained(done, 0, method)))


def test_what_is_learnt_by_heart_is_exposed(arranged_workplace: Path) -> None:
    # A softmax regression on the token at each place likes the canary's tokens best where nothing else has the label.
    long = {"train": {"epochs": 300, "learning_rate": 0.5}}
    often = walked(arranged_workplace, {"canary": {"times": 30, "sentences": SENTENCES}}, **long)
    bits = often.rows["fedavg"].canary_client_exposure
    assert bits == math.log2(SENTENCES)


def test_seeds_have_different_canaries_and_methods_the_same(arranged_workplace: Path) -> None:
    one, other = walked(arranged_workplace), walked(arranged_workplace, seeds=[1])
    assert not torch.equal(canary_of(one.partition).sentences, canary_of(other.partition).sentences)
    again = walked(arranged_workplace, methods={"fisher_merge": {}})
    assert again.partition.key == one.partition.key


def test_only_networks_of_the_clients_shape_are_measured(arranged_workplace: Path) -> None:
    rows = walked(arranged_workplace, methods={"fedavg": {}, "ensemble": {}, "centralised": {}}).rows
    assert rows["fedavg"].canary_exposure is not None
    for method in ("ensemble", "centralised"):
        assert (rows[method].canary_exposure, rows[method].canary_client_exposure) == (None, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"data": {"dataset": "table"}, "model": {"name": "mlp"}},
            r"measures\.canary with data\.dataset='table'.*tokens",
        ),
        ({"measures": {"canary": {"sentences": 1}}}, r"measures\.canary\.sentences=1"),
        ({"measures": {"canary": {"times": 0}}}, r"measures\.canary\.times=0"),
        ({"methods": {"ensemble": {}}}, r"measures\.canary, but none of the methods \(ensemble\) returns"),
        ({"methods": {"centralised": {}}}, r"measures\.canary, but none of the methods \(centralised\) returns"),
        ({"privacy": {"epsilon": 3.0}}, r"measures\.canary with privacy"),
        ({"rounds": {"cohort": 2}}, r"rounds\.cohort=2 with measures\.canary.*allowed: rounds\.cohort=null"),
        ({"measures": {"canary": {"times": 10_000}}}, r"measures\.canary\.times=10000 of .*all clients have 120 texts"),
    ],
)
def test_what_can_not_be_measured_is_refused_before_any_work(
    arranged_workplace: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        check_federations(
            tiny.tiny_settings(arranged_workplace, **{"methods": FEDAVG, "measures": CANARY, **TEXTS, **changes})
        )
    assert not (arranged_workplace / "artifacts").exists()


def test_labels_and_validation_examples_are_those_that_clients_train_on(arranged_workplace: Path) -> None:
    data = {"dataset": "texts", "validation_size": 60}
    done, plain = walked(arranged_workplace, data=data), walked(arranged_workplace, {}, data=data)
    for client in range(3):
        expected = held(done, client).labels.bincount(minlength=arranged.CLASSES).tolist()
        assert label_counts(done.partition)[client] == expected
    validation, places = validation_set(done.partition), read_tensors(done.partition, CANARY_FILE)["places"]
    assert not torch.isin(validation, places).any()
    before = validation_set(plain.partition)
    assert torch.equal(validation, before[~torch.isin(before, places)])


def test_a_client_with_fewer_texts_is_named(arranged_workplace: Path) -> None:
    with pytest.raises(InputError, match=r"measures\.canary\.times=100: client 0 has \d+ texts.*up to as many"):
        walked(arranged_workplace, {"canary": {"times": 100, "sentences": SENTENCES}})


def drawn(texts: torch.Tensor, layout: Tokens) -> torch.Tensor:
    settings = CanarySettings(times=TIMES, sentences=SENTENCES)
    generator = torch.Generator().manual_seed(0)
    found = draw_canary(settings, texts, torch.arange(10, 20), layout=layout, classes=3, generator=generator)
    return found["sentences"]


WORDS = torch.randint(2, 12, (40, 3), generator=torch.Generator().manual_seed(1))
BEGUN = torch.cat([torch.zeros(40, 1), WORDS, torch.ones(40, 1)], dim=1).long()


def test_it_begins_and_ends_as_all_texts_do() -> None:
    sentences = drawn(BEGUN, Tokens(5, 12))
    assert torch.equal(sentences[:, [0, 4]], torch.tensor([[0, 1]]).expand(SENTENCES, 2))
    assert int(sentences[:, 1:4].min()) >= 2


def test_padding_is_no_part_of_it() -> None:
    padding = 12
    short = torch.cat([BEGUN, torch.full((40, 2), padding)], dim=1)
    # One text of the client is longer than the others, and gives the canary its form.
    short[15] = torch.tensor([0, 3, 4, 5, 6, 1, padding])
    sentences = drawn(short, Texts(7, 13, tokenizer="any", padding=padding, digest="0"))
    assert torch.equal(sentences[:, [0, 5, 6]], torch.tensor([[0, 1, padding]]).expand(SENTENCES, 3))
    assert int(sentences[:, 1:5].min()) >= 2
    assert int(sentences[:, 1:5].max()) < padding


def test_texts_without_tokens_of_their_own_are_refused() -> None:
    with pytest.raises(InputError, match=r"measures\.canary\.sentences=64: a canary of .* at 0 places"):
        drawn(torch.tensor([0, 5, 1]).expand(40, 3), Tokens(3, 12))
