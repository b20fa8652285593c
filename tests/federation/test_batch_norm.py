"""Federations of networks with batch normalisation, whose running statistics are sent as weights are."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfisher_core.client.objectives.objective import configure_objective
from fedfisher_core.client.round_state import NO_PAST
from fedfisher_core.communication.wire.payload import bits_of
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.store import read_tensors
from fedfisher_core.federation.aggregating import server_of
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.federation import StartInputs
from fedfisher_core.federation.start import NETWORK
from fedfisher_core.federation.uploads import TENSORS
from fedfisher_core.settings import Choice
from tests import tiny
from tests.models.test_batch_norm import SPEC
from tests.walked import Walked, walk_tiny

PLAIN = (
    *("best_local", "dare", "ensemble", "fedavg", "fedbens", "fedfish", "fedfisher_diag", "fedfisher_full"),
    *("fedfisher_kfac", "fisher_merge", "fipa", "gradient_matching", "iso_c", "local_mean", "mats", "regmean", "ties"),
    *("tsv_m", "wudi"),
)
SERVED: dict[str, dict[str, Any]] = {
    **{method: {} for method in PLAIN},
    "co_boosting": {"epochs": 2, "generator_steps": 2, "images": 8},
    "dense": {"epochs": 2, "generator_steps": 2, "images": 8},
    "fedlpa": {"rate": 0.01},
    # A tiny network's budget has no room for moments of inputs.
    "gaussian_distillation": {"steps": 3, "samples": 4, "wire": {"budget": "none"}},
    "mixture_distillation": {"steps": 3, "samples": 4, "wire": {"budget": "none"}},
}
REFUSED = ("ma_echo", "otfusion", "pfnm")


@pytest.mark.drawn(8)
@pytest.mark.parametrize("method", SERVED)
def test_methods_that_know_of_no_layer_serve_it(workplace: Path, method: str) -> None:
    done = walk_tiny(workplace, {method: SERVED[method]}, model={"name": SPEC.name})
    assert 0 <= done.rows[method].accuracy <= 1
    assert torch.isfinite(torch.tensor(done.rows[method].loss))


@pytest.mark.parametrize("method", REFUSED)
def test_methods_of_matrices_refuse_it_by_name(workplace: Path, method: str) -> None:
    with pytest.raises(
        InputError, match=f"method '{method}' can't serve model 'batch_norm': .*'norm' has type BatchNorm"
    ):
        walk_tiny(workplace, {method: {}}, model={"name": SPEC.name})


def estimating(folder: Path, methods: dict[str, Any], **changes: Any) -> Walked:
    return walk_tiny(folder, methods, model={"name": SPEC.name, "running_statistics": "estimated"}, **changes)


def test_a_server_estimates_the_running_statistics_of_what_it_merged(workplace: Path) -> None:
    done = estimating(workplace, {"fedavg": {}, "ensemble": {}})
    start = done.made(done.plan.federations.start(done.federation))
    server = server_of(done.federation, StartInputs(done.data, done.partition, start))
    network = server.network(read_tensors(done.aggregate("fedavg"), NETWORK.format(0)))
    images = server.validation.inputs
    seen = network.conv(images)
    assert torch.allclose(network.norm.mean, seen.mean((0, 2, 3)), atol=1e-5)
    assert torch.allclose(network.norm.variance, seen.var((0, 2, 3)), rtol=1e-4)
    assert done.rows["fedavg"].uses_validation
    merged = walk_tiny(workplace, {"fedavg": {}, "ensemble": {}}, model={"name": SPEC.name})
    assert merged.rows["fedavg"].loss != done.rows["fedavg"].loss
    assert not merged.rows["fedavg"].uses_validation
    # Its networks are the clients' own.
    assert merged.rows["ensemble"].artifact == done.rows["ensemble"].artifact


def test_a_network_that_was_trained_at_the_server_keeps_the_statistics_it_was_trained_with(workplace: Path) -> None:
    methods = {name: SERVED[name] for name in ("gaussian_distillation", "mixture_distillation")}
    done = estimating(workplace, methods)
    merged = walk_tiny(workplace, methods, model={"name": SPEC.name})
    for name in methods:
        assert done.rows[name].artifact == merged.rows[name].artifact
        assert not done.rows[name].uses_validation


def test_the_next_round_starts_from_the_estimates(workplace: Path) -> None:
    done = estimating(workplace, {"fedavg": {}}, rounds={"count": 2})
    assert done.rows["fedavg"].uses_validation
    assert torch.isfinite(torch.tensor(done.rows["fedavg"].loss))


def test_server_optimisers_leave_running_statistics_to_the_aggregate(workplace: Path) -> None:
    changes: dict[str, Any] = {"model": {"name": SPEC.name}, "partition": {"scheme": "iid"}}
    merged = {}
    for optimiser in ("average", "fedadam"):
        done = walk_tiny(workplace, {"fedavg": {}}, rounds={"server_optimiser": optimiser}, **changes)
        label = done.plan.federations.aggregation(done.federation, "fedavg").name
        merged[optimiser] = read_tensors(done.outcome.artifacts[label], NETWORK.format(0))
    same = {name for name, tensor in merged["average"].items() if torch.equal(tensor, merged["fedadam"][name])}
    assert same == {"norm.mean", "norm.log_variance"}


@pytest.mark.parametrize(
    ("chosen", "changes", "message"),
    [
        ("refused", {}, r"running_statistics='refused', but model 'batch_norm' has them in 'norm'"),
        ("estimated", {"model": "tiny"}, r"running_statistics='estimated', but no model among \['tiny'\] has any"),
        ("estimated", {"data": {"validation_size": 0}}, r"running_statistics='estimated' needs validation images"),
    ],
)
def test_what_can_not_be_done_with_them_is_refused(
    workplace: Path, chosen: str, changes: dict[str, Any], message: str
) -> None:
    model = {"name": changes.pop("model", SPEC.name), "running_statistics": chosen}
    with pytest.raises(InputError, match=message):
        check_federations(tiny.tiny_settings(workplace, model=model, **changes))


def test_fedavg_averages_the_running_statistics_that_clients_send(workplace: Path) -> None:
    exact = {"budget": "none", "format": "float32"}
    done = walk_tiny(workplace, {"fedavg": {"wire": exact}}, model={"name": SPEC.name}, partition={"scheme": "iid"})
    clients = [read_tensors(done.client(one, "fedavg")["weights"], TENSORS) for one in range(3)]
    label = done.plan.federations.aggregation(done.federation, "fedavg").name
    merged = read_tensors(done.outcome.artifacts[label], NETWORK.format(0))
    for name in ("norm.mean", "norm.log_variance"):
        seen = torch.stack([one[name] for one in clients])
        assert seen.std(0).min() > 1e-4
        assert (merged[name] >= seen.amin(0)).all()
        assert (merged[name] <= seen.amax(0)).all()
    assert done.rows["fedavg"].upload_bits_formula == 3 * 32 * sum(one.numel() for one in merged.values())


def test_a_secure_sum_has_the_running_statistics_like_any_weight(workplace: Path) -> None:
    wires = {
        "secure": {"budget": "none", "server_view": "secure_sum"},
        "plain": {"budget": "none", "format": "float32"},
    }
    methods = {label: {"method": "fedavg", "wire": wire} for label, wire in wires.items()}
    done = walk_tiny(workplace, methods, model={"name": SPEC.name})
    secure, plain = (read_tensors(done.aggregate(label), NETWORK.format(0)) for label in methods)
    assert {"norm.mean", "norm.log_variance"} < plain.keys()
    for name, tensor in plain.items():
        torch.testing.assert_close(secure[name], tensor, rtol=1e-5, atol=2e-6)


def test_scaffold_corrects_what_is_learnt_and_sends_nothing_of_running_statistics(workplace: Path) -> None:
    sent = {}
    for objective in ("plain", "scaffold"):
        done = walk_tiny(
            workplace,
            {"fedavg": {}},
            model={"name": SPEC.name},
            rounds={"count": 2},
            train={"objective": objective, "momentum": 0.0},
        )
        sent[objective] = done.rows["fedavg"].upload_bits
    learnt = {name: one for name, one in done.federation.spec.skeleton().named_parameters() if one.requires_grad}
    assert not any("mean" in name or "variance" in name for name in learnt)
    # Of three clients in two rounds.
    assert sent["scaffold"] - sent["plain"] == 3 * 2 * bits_of(learnt)


def test_fedprox_pulls_at_what_is_learnt() -> None:
    network = SPEC.load(tiny.initial(SPEC)).train()
    objective = configure_objective("fedprox", {"fedprox": Choice.model_validate({"mu": 2.0})})
    labels = torch.zeros(4, dtype=torch.int64)
    losses = objective.losses(network, labels, 3, NO_PAST)
    with torch.no_grad():
        for one in network.parameters():
            one += 1
    pulled = losses(torch.zeros(4, 3), labels)
    learnt = sum(one.numel() for one in network.parameters() if one.requires_grad)
    torch.testing.assert_close(pulled, torch.full((4,), math.log(3) + learnt))
