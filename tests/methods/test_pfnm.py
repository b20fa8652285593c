from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.layouts import Images
from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.models.spec import ModelSpec, Parameters, model
from fedfisher_core.models.streams import chain
from fedfisher_core.settings import FisherSettings
from tests import tiny
from tests.methods.clients import bind_written, empty
from tests.methods.units import SPECS, drawn, outputs, related, shuffled, uploaded

every_network = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.name} {'bias' * spec.bias}".strip())
MLPS = [replace(SPECS[2], bias=bias) for bias in (False, True)]
by_bias = pytest.mark.parametrize("spec", SPECS[:2], ids=["no bias", "bias"])
by_bias_of_mlp = pytest.mark.parametrize("spec", MLPS, ids=["no bias", "bias"])


@model("fixed_width")
class FixedWidth(nn.Module):
    """A chain whose hidden layer is as wide as it is."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.hidden = nn.Linear(spec.inputs.size, 4)
        self.head = nn.Linear(4, spec.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(functional.relu(self.hidden(inputs.flatten(1))))


def aggregate(spec: ModelSpec, uploads: Sequence[Upload], *, seed: int = 0, **settings: Any) -> Aggregate:
    server = Server(
        spec=spec,
        dataset=tiny.TINY_DATA,
        fisher=FisherSettings(estimator="exact"),
        initial=tiny.initial(spec),
        generator=torch.Generator().manual_seed(seed),
        device=torch.device("cpu"),
        validation=empty(),
    )
    result = bind_written("pfnm", settings, [spec])(server, uploads)
    assert not server.used_validation
    return result


def global_outputs(result: Aggregate) -> Tensor:
    assert result.spec is not None
    return outputs(result.spec, result.networks[0])


def shrunk(
    spec: ModelSpec,
    parameters: Parameters,
    copies: int,
    *,
    sigma: float = 1.0,
    sigma0: float = 1.0,
    prior_mean: float = 0.0,
    bias_prior_mean: float = 0.1,
) -> Parameters:
    """Hidden layers as posterior means of so many copies; the last layer as it is."""
    last = chain(spec)[-1].name
    result = {}
    for name, tensor in parameters.items():
        mean = bias_prior_mean if name.endswith("bias") else prior_mean
        posterior = (mean / sigma0 + copies * tensor / sigma) / (1 / sigma0 + copies / sigma)
        result[name] = tensor if name.startswith(f"{last}.") else posterior
    return result


@pytest.mark.drawn(12)
@pytest.mark.parametrize("copies", [1, 2, 5])
@pytest.mark.parametrize(
    "settings", [{}, {"sigma": 0.5, "sigma0": 3.0, "prior_mean": 0.05, "bias_prior_mean": -0.4, "sweeps": 1}]
)
@every_network
def test_copies_of_one_client_are_shrunk_by_the_prior(spec: ModelSpec, settings: dict[str, Any], copies: int) -> None:
    client = drawn(spec, 0)
    result = aggregate(spec, uploaded([client] * copies), **settings)
    expected = shrunk(spec, client, copies, **{key: value for key, value in settings.items() if key != "sweeps"})
    (network,) = result.networks
    assert list(network) == list(client)
    for name, tensor in expected.items():
        assert network[name].dtype == torch.float32
        assert torch.allclose(network[name], tensor, atol=1e-6), name
    assert result.details["relative_size"] == 1


@every_network
def test_a_client_alone_without_biases_keeps_its_predictions(spec: ModelSpec) -> None:
    spec = replace(spec, bias=False)
    client = drawn(spec, 3)
    found = global_outputs(aggregate(spec, uploaded([client])))
    halvings = len(chain(spec)) - 1
    assert torch.allclose(found, outputs(spec, client) / 2**halvings, rtol=1e-5)


@every_network
def test_units_of_shuffled_copies_find_each_other(spec: ModelSpec) -> None:
    client = drawn(spec, 1)
    copies = [client, shuffled(client, spec, 1), shuffled(client, spec, 2)]
    assert not torch.equal(next(iter(copies[0].values())), next(iter(copies[1].values())))
    result = aggregate(spec, uploaded(copies))
    assert result.spec is not None
    assert result.spec.widths == tuple(layer.units for layer in chain(spec)[:-1])
    assert torch.allclose(global_outputs(result), outputs(spec, shrunk(spec, client, 3)), rtol=1e-5, atol=1e-4)


@every_network
def test_clients_without_anything_in_common_stand_side_by_side(spec: ModelSpec) -> None:
    # Without a prior that shrinks, units stay as they are, and those that differ are not matched.
    clients = [drawn(spec, seed, 100.0) for seed in range(3)]
    uploads = uploaded(clients)
    result = aggregate(spec, uploads, sigma0=1e9)
    assert result.spec is not None
    hidden = chain(spec)[:-1]
    assert result.spec.widths == tuple(3 * layer.units for layer in hidden)
    assert [result.details[f"{layer.name}_units"] for layer in hidden] == [3 * layer.units for layer in hidden]
    sizes = [sum(tensor.numel() for tensor in network.values()) for network in (result.networks[0], clients[0])]
    assert result.details["relative_size"] == sizes[0] / sizes[1] > 1
    counts = torch.stack([upload[LabelCounts].tensors["counts"] for upload in uploads]).double()
    shares = counts / counts.sum(0)
    expected = sum(share * outputs(spec, client) for share, client in zip(shares, clients, strict=True))
    found = global_outputs(result)
    assert torch.allclose(found, torch.as_tensor(expected), rtol=1e-4, atol=1e-4 * float(found.abs().max()))


def test_a_larger_gamma_makes_wider_networks() -> None:
    spec = SPECS[2]
    clients = [drawn(spec, seed, 0.5) for seed in range(4)]
    sizes = [aggregate(spec, uploaded(clients), gamma=gamma).details["relative_size"] for gamma in (1e-9, 7, 1e9)]
    assert 1 == sizes[0] < sizes[1] < sizes[2]
    limited = aggregate(spec, uploaded(clients), gamma=1e9, max_units=7, sweeps=0)
    assert limited.spec is not None
    # Widths are 7, 6 and 5 with the first client; the second fills up to 7, and in a full layer each adds one.
    assert limited.spec.widths == (7 + 1 + 1 + 1, 6 + 1 + 1 + 1, 5 + 2 + 1 + 1)


@by_bias
def test_the_last_layer_is_the_mean_by_class_frequency(spec: ModelSpec) -> None:
    base = drawn(spec, 4)
    heads = [drawn(spec, seed) for seed in (5, 6, 7)]
    mixed = [base | {name: head[name] for name in base if name.startswith("head")} for head in heads]
    # Two clients know class 0, one knows class 1, and none knows class 2.
    counts = [[30, 0, 0], [10, 0, 0], [0, 7, 0]]
    clients = [mixed[0], shuffled(mixed[1], spec, 1), shuffled(mixed[2], spec, 2)]
    result = aggregate(spec, uploaded(clients, counts))
    assert result.spec is not None
    assert result.spec.widths == (2, 5)
    (network,) = result.networks
    for label, row in enumerate(network["head.weight"].tolist()):
        total = sum(count[label] for count in counts)
        parts = [count[label] / total if total else 1 / 3 for count in counts]
        for unit, value in enumerate(row):
            expected = sum(p * float(one["head.weight"][label, unit]) for p, one in zip(parts, mixed, strict=True))
            assert value == pytest.approx(expected, rel=1e-5, abs=1e-6)
        if spec.bias:
            expected = sum(p * float(one["head.bias"][label]) for p, one in zip(parts, mixed, strict=True))
            assert float(network["head.bias"][label]) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_without_hidden_layers_only_the_classes_are_averaged() -> None:
    clients = [drawn(tiny.LINEAR, seed) for seed in range(2)]
    result = aggregate(tiny.LINEAR, uploaded(clients, [[3, 0, 1], [1, 5, 1]]))
    shares = torch.tensor([[0.75, 0, 0.5], [0.25, 1, 0.5]])
    expected = sum(share[:, None] * one["head.weight"] for share, one in zip(shares, clients, strict=True))
    assert torch.allclose(result.networks[0]["head.weight"], torch.as_tensor(expected))


@by_bias
@pytest.mark.parametrize("zeroed", ["conv.weight", "hidden.weight", ""])
def test_units_of_zeros_are_matched_like_others(spec: ModelSpec, zeroed: str) -> None:
    clients = [drawn(spec, seed) for seed in range(3)]
    for name, tensor in clients[1].items():
        if name.startswith(zeroed):
            tensor.zero_()
    clients[2]["hidden.weight"][:2] = 0
    result = aggregate(spec, uploaded(clients, [[1, 0, 0], [0, 1, 0], [1, 1, 0]]))
    assert all(torch.isfinite(tensor).all() for tensor in result.networks[0].values())
    assert torch.isfinite(global_outputs(result)).all()


@by_bias_of_mlp
def test_the_order_of_a_clients_hidden_units_does_not_matter(spec: ModelSpec) -> None:
    clients = related(spec, 3)
    other = [shuffled(one, spec, seed) for seed, one in enumerate(clients)]
    found, again = (aggregate(spec, uploaded(each)) for each in (clients, other))
    assert found.spec == again.spec
    assert found.spec is not None
    # Some units have partners and some have none.
    assert all(own < width < 3 * own for own, width in zip(spec.widths, found.spec.widths, strict=True))
    assert torch.allclose(global_outputs(found), global_outputs(again), rtol=1e-5, atol=1e-6)


@by_bias_of_mlp
def test_the_order_of_clients_matters(spec: ModelSpec) -> None:
    # The units of the first make the first global units, and later clients are matched given earlier ones.
    uploads = uploaded(related(spec, 4))
    found, other = (global_outputs(aggregate(spec, each, sweeps=0)) for each in (uploads, uploads[::-1]))
    assert (found - other).abs().max() > 0.01 * found.abs().max()


def test_sweeps_match_all_clients_again_in_orders_that_the_server_draws() -> None:
    spec = MLPS[0]
    uploads = uploaded(related(spec, 4))
    once, again = (global_outputs(aggregate(spec, uploads, sweeps=sweeps)) for sweeps in (0, 5))
    assert not torch.allclose(once, again, rtol=0.01)
    assert torch.equal(once, global_outputs(aggregate(spec, uploads, sweeps=0, seed=1)))
    drawn_otherwise = [global_outputs(aggregate(spec, uploads, sweeps=1, seed=seed)) for seed in range(4)]
    assert not all(torch.allclose(drawn_otherwise[0], one, rtol=0.01) for one in drawn_otherwise)


@by_bias_of_mlp
def test_aggregation_is_reproducible_and_leaves_the_uploads_alone(spec: ModelSpec) -> None:
    uploads, untouched = (uploaded(related(spec, 3)) for _ in range(2))
    (first,), (second,) = (aggregate(spec, uploads).networks for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    for upload, original in zip(uploads, untouched, strict=True):
        for kind, statistic in original.statistics.items():
            assert all(torch.equal(upload.statistics[kind].tensors[key], t) for key, t in statistic.tensors.items())


@every_network
def test_the_official_prior_lands_on_a_weight(spec: ModelSpec) -> None:
    client = drawn(spec, 0)
    result = aggregate(spec, uploaded([client] * 2), bias_prior_mean=0.6, official_prior_bug=True)
    (network,) = result.networks
    first, *others, _ = chain(spec)
    plain = shrunk(spec, client, 2, bias_prior_mean=0.0)
    expected = {name: tensor.clone() for name, tensor in plain.items()}
    for layer in others:
        expected[f"{layer.name}.weight"].flatten(1)[:, 0] += 0.6 / 3
    if spec.bias:
        expected[f"{first.name}.bias"] += 0.6 / 3
    for name, tensor in expected.items():
        assert torch.allclose(network[name], tensor, atol=1e-6), name


def test_skip_connections_are_refused() -> None:
    with pytest.raises(InputError, match=r"method 'pfnm' can't serve model 'resnet18': .*skip connection"):
        bind_written("pfnm", {}, [ModelSpec("resnet18", Images(1, 8, 8), classes=3)])


def test_a_network_that_cannot_be_made_wider_is_refused() -> None:
    message = r"method 'pfnm' can't serve model 'fixed_width': .*widths \(5,\), it makes \(4,\)"
    with pytest.raises(InputError, match=message):
        bind_written("pfnm", {}, [ModelSpec("fixed_width", Images(1, 8, 8), classes=3)])


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("sigma", value) for value in (0, -1, float("inf"), float("nan"))),
        *(("sigma0", value) for value in (0, float("inf"))),
        *(("gamma", value) for value in (0, float("inf"))),
        ("sweeps", -1),
        ("max_units", 0),
        ("prior_mean", float("nan")),
        ("bias_prior_mean", float("inf")),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(setting: str, value: float) -> None:
    with pytest.raises(InputError, match=rf"methods\.pfnm\.{setting}="):
        bind_written("pfnm", {setting: value}, [tiny.TINY])
