"""Outputs of merged networks, moved by the logarithms of the shares of labels."""

from pathlib import Path
from typing import Any

import pytest
import torch

import fedfisher
from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.uploads import Upload
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.store import read_tensors
from fedfisher_core.methods.shared.gaussian_heads import Moments
from fedfisher_core.models.spec import ModelSpec
from tests import tiny
from tests.methods.clients import aggregate, bind_written, made_up_uploads
from tests.walked import walk_tiny

SPEC = tiny.TINY_WITH_BIAS
COUNTS = torch.tensor([[9.0, 0, 1], [3, 6, 1]])
SHARES = COUNTS.sum(0) / COUNTS.sum()
INPUTS = tiny.examples(50, seed=7).inputs


def uploads(counts: torch.Tensor = COUNTS, spec: ModelSpec = SPEC) -> list[Upload]:
    made = made_up_uploads([tiny.initial(spec, seed=seed) for seed in range(len(counts))], spec)
    return [
        Upload(int(row.sum()), {**one.statistics, LabelCounts: LabelCounts({"counts": row})})
        for one, row in zip(made, counts, strict=True)
    ]


def outputs(name: str, **settings: Any) -> torch.Tensor:
    (network,) = aggregate(name, uploads(), spec=SPEC, **settings).networks
    return SPEC.load(network).eval()(INPUTS).detach()


@pytest.mark.parametrize("name", ["fedavg", "fedfisher_kfac", "regmean", "fedfish", "fedavg_by_holders"])
@pytest.mark.parametrize("tau", [-1.0, 0.5])
def test_each_output_moves_by_its_share_of_labels(name: str, tau: float) -> None:
    chosen = {"off_diagonal": [0.9]} if name == "regmean" else {}
    moved = outputs(name, label_prior=tau, **chosen) - outputs(name, **chosen)
    torch.testing.assert_close(moved, (tau * SHARES.log()).expand_as(moved), rtol=1e-4, atol=1e-5)


def test_minus_one_divides_probabilities_by_the_shares() -> None:
    divided = outputs("fedavg").softmax(1) / SHARES
    expected = divided / divided.sum(1, keepdim=True)
    torch.testing.assert_close(outputs("fedavg", label_prior=-1).softmax(1), expected, rtol=1e-4, atol=1e-6)


def test_a_class_that_no_client_has_counts_as_one_example() -> None:
    made = uploads(torch.tensor([[4.0, 0, 0], [0, 4, 0]]))
    before, after = (aggregate("fedavg", made, spec=SPEC, **one).networks[0] for one in ({}, {"label_prior": 1.0}))
    expected = torch.tensor([4 / 8, 4 / 8, 1 / 8]).log()
    torch.testing.assert_close(after["head.bias"] - before["head.bias"], expected, rtol=1e-4, atol=1e-5)


def test_without_it_a_method_is_described_as_before() -> None:
    plain, zero, used = (bind_written("fedavg", one, [SPEC]) for one in ({}, {"label_prior": 0}, {"label_prior": -1}))
    assert plain.described() == zero.described()
    assert [one.statistic.name for one in plain.uploads] == ["weights"]
    assert used.dumped_settings() == {"label_prior": -1.0}
    assert [one.statistic.name for one in used.uploads] == ["weights", "label_counts"]


def test_label_counts_are_counted_in_the_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(tiny.write_tiny(tmp_path / "data")))
    monkeypatch.chdir(tmp_path)
    wire = {"wire": {"budget": "none", "format": "float32"}}
    prior = {"method": "fedavg", "label_prior": -1, **wire}
    done = walk_tiny(tmp_path, {"fedavg": wire, "prior": prior}, model={"name": "tiny", "bias": True})
    plain, moved = done.rows["fedavg"], done.rows["prior"]
    assert moved.upload_bits - plain.upload_bits == plain.num_clients * 32 * tiny.CLASSES
    before, after = (read_tensors(done.aggregate(name), "network_0.safetensors") for name in ("fedavg", "prior"))
    assert [name for name, tensor in before.items() if not torch.equal(tensor, after[name])] == ["head.bias"]


def test_networks_of_ones_own_have_it_too() -> None:
    clients = [
        fedfisher.Client(SPEC.load(tiny.initial(SPEC, seed=seed)), (data.inputs, data.labels))
        for seed, data in ((0, tiny.examples(20)), (1, tiny.examples(30, seed=1)))
    ]
    plain = fedfisher.merge(clients, method="fedavg")(INPUTS)
    moved = fedfisher.merge(clients, method="fedavg", label_prior=-1)(INPUTS) - plain
    labels = torch.cat([tiny.examples(20).labels, tiny.examples(30, seed=1).labels])
    expected = -(labels.bincount() / len(labels)).log()
    torch.testing.assert_close(moved.detach(), expected.expand_as(moved), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["fedcgs", "gh_lda"])
def test_heads_of_normal_distributions_lose_the_shares_that_they_have(name: str) -> None:
    spec = tiny.LINEAR_WITH_BIAS
    made = uploads(spec=spec)
    (head,) = aggregate(name, made, spec=spec, label_prior=-1).networks
    weight, bias = head.values()
    expected = -(weight * Moments.of(made).means).sum(1) / 2
    torch.testing.assert_close(bias, expected.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "settings", "spec", "message"),
    [
        ("fedavg", {"label_prior": -11}, SPEC, r"methods\.fedavg\.label_prior=-11"),
        ("fedavg", {"label_prior": "yes"}, SPEC, r"methods\.fedavg\.label_prior='yes'"),
        (
            "fedavg",
            {"label_prior": -1},
            tiny.TINY,
            r"label_prior moves the bias of layer 'head', and model\.bias=false",
        ),
        (
            "ensemble",
            {"label_prior": -1},
            SPEC,
            "method 'ensemble' keeps several networks; allowed: methods that leave",
        ),
        (
            "afl",
            {"label_prior": -1},
            tiny.LINEAR_WITH_BIAS,
            r"methods\.afl\.label_prior: outputs of method 'afl' hold no log-shares of labels; allowed: .*fedavg",
        ),
        ("ccvr", {"label_prior": -1}, SPEC, r"methods\.ccvr\.label_prior: outputs of method 'ccvr' hold no"),
        (
            "fedavg",
            {"label_prior": -1, "wire": {"budget": "none", "server_view": "secure_sum"}},
            SPEC,
            r"methods\.fedavg\.label_prior with wire\.server_view='secure_sum'",
        ),
    ],
)
def test_what_it_can_not_do_is_refused(name: str, settings: dict[str, Any], spec: ModelSpec, message: str) -> None:
    with pytest.raises(InputError, match=message):
        bind_written(name, settings, [spec])
