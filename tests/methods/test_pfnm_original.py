from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.layouts import Images
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.models.evaluation import accuracy
from fedfisher_core.models.spec import ModelSpec, Parameters
from fedfisher_core.models.streams import chain
from fedfisher_core.settings import FisherSettings
from tests import tiny
from tests.methods.clients import bind_written, empty
from tests.methods.units import SPECS, drawn, outputs, related, shuffled, uploaded

every_network = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.name} {'bias' * spec.bias}".strip())
MLP = ModelSpec("mlp", Images(1, 4, 4), classes=3, bias=True, widths=(5, 4, 3))
POINT = {"sigma": [1.0], "sigma0": [1.0], "gamma": [1.0]}
GRID = {"sigma": [1.0, 0.1], "sigma0": [1.0, 10.0], "gamma": [1.0, 0.001, 50.0]}


def server(spec: ModelSpec, validation: Examples) -> Server:
    return Server(
        fisher=FisherSettings(estimator="exact"),
        spec=spec,
        dataset=tiny.TINY_DATA,
        initial=tiny.initial(spec),
        generator=torch.Generator().manual_seed(0),
        device=torch.device("cpu"),
        validation=validation,
    )


def aggregate(
    spec: ModelSpec, uploads: Sequence[Upload], *, validation: Examples | None = None, **settings: Any
) -> Aggregate:
    held = server(spec, empty() if validation is None else validation)
    return bind_written("pfnm_original", settings, [spec])(held, uploads)


@every_network
def test_units_of_shuffled_copies_find_each_other(spec: ModelSpec) -> None:
    client = drawn(spec, 1)
    copies = [client, shuffled(client, spec, 1), shuffled(client, spec, 2)]
    assert not torch.equal(next(iter(copies[0].values())), next(iter(copies[1].values())))
    # A prior without weight shrinks nothing.
    result = aggregate(spec, uploaded(copies), **POINT | {"sigma0": [1e9]})
    assert result.spec is not None
    assert result.spec.widths == tuple(layer.units for layer in chain(spec)[:-1])
    assert result.details["relative_size"] == 1
    expected = outputs(spec, client)
    found = outputs(result.spec, result.networks[0])
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


@every_network
@pytest.mark.parametrize(("sigma", "sigma0", "prior_mean", "bias_prior_mean"), [(1, 1, 0, 0.1), (0.5, 3, 0.05, -0.4)])
def test_copies_of_one_client_are_shrunk_by_the_prior(
    spec: ModelSpec, sigma: float, sigma0: float, prior_mean: float, bias_prior_mean: float
) -> None:
    client, copies, last = drawn(spec, 0), 3, chain(spec)[-1].name
    settings = {"prior_mean": prior_mean, "bias_prior_mean": bias_prior_mean, "gamma": [1.0]}
    (network,) = aggregate(spec, uploaded([client] * copies), sigma=[sigma], sigma0=[sigma0], **settings).networks
    assert list(network) == list(client)
    for name, tensor in client.items():
        mean = bias_prior_mean if name.endswith("bias") else prior_mean
        # What goes into a class counts once, as the clients' parts of its examples add up to one.
        count = 1 if name.startswith(f"{last}.") else copies
        expected = (mean / sigma0 + count * tensor / sigma) / (1 / sigma0 + count / sigma)
        assert network[name].dtype == torch.float32
        assert torch.allclose(network[name], expected, atol=1e-6), name


Arrays = dict[str, NDArray[np.float64]]


def by_definition(
    networks: Sequence[Arrays], parts: NDArray[np.float64], *, sigma: float, sigma0: float, gamma: float
) -> Arrays:
    """The authors' rule for an mlp with biases and one visit a client: vectors with all coordinates, unit by unit."""
    clients, classes = parts.shape
    merged: Arrays = {}
    slots = [list(range(classes)) for _ in range(clients)]
    width = classes
    for here, after in (("fc3", "fc4"), ("fc2", "fc3"), ("fc1", "fc2")):
        inputs = networks[0]["fc1.weight"].shape[1] if here == "fc1" else 0
        mean = np.array([0.0] * inputs + [0.1] + [0.0] * width)
        sums: list[NDArray[np.float64]] = []
        precisions: list[NDArray[np.float64]] = []
        counts: list[int] = []
        became = []
        for client, network in enumerate(networks):
            share = np.ones(inputs + 1 + width)
            if after == "fc4":
                share[inputs + 1 :] = parts[client]
            rows = []
            for unit in range(len(network[f"{here}.weight"])):
                outgoing = np.zeros(width)
                outgoing[slots[client]] = network[f"{after}.weight"][:, unit]
                incoming = network[f"{here}.weight"][unit] if inputs else []
                rows.append(np.concatenate([incoming, [network[f"{here}.bias"][unit]], outgoing]) * share / sigma)
            gains = np.empty((len(rows), len(sums) + len(rows)))
            for unit, row in enumerate(rows):
                for k, (total, precision) in enumerate(zip(sums, precisions, strict=True)):
                    gain = (row + total) ** 2 / (precision + share / sigma) - total**2 / precision
                    gains[unit, k] = gain.sum() + np.log(counts[k] / (clients - counts[k]))
                for place in range(len(rows)):
                    gain = (row + mean / sigma0) ** 2 / (1 / sigma0 + share / sigma) - mean**2 / sigma0
                    gains[unit, len(sums) + place] = gain.sum() - 2 * np.log(place + 1) + 2 * np.log(gamma / clients)
            known, own = len(sums), []
            for row, column in zip(rows, linear_sum_assignment(-gains)[1], strict=True):
                if column >= known:
                    own.append(len(sums))
                    sums.append(mean / sigma0 + row)
                    precisions.append(1 / sigma0 + share / sigma)
                    counts.append(1)
                else:
                    own.append(column)
                    sums[column] = sums[column] + row
                    precisions[column] = precisions[column] + share / sigma
                    counts[column] += 1
            became.append(own)
        units = np.stack(sums) / np.stack(precisions)
        merged[f"{after}.weight"] = units[:, inputs + 1 :].T
        merged[f"{here}.bias"] = units[:, inputs]
        if inputs:
            merged[f"{here}.weight"] = units[:, :inputs]
        slots, width = became, len(units)
    biases = np.stack([network["fc4.bias"] for network in networks])
    merged["fc4.bias"] = (0.1 / sigma0 + (parts * biases).sum(0) / sigma) / (1 / sigma0 + 1 / sigma)
    return merged


@pytest.mark.parametrize(("sigma", "sigma0", "gamma"), [(1, 1, 1), (0.1, 10, 50), (0.5, 1, 0.001)])
def test_the_network_is_what_its_definition_says(sigma: float, sigma0: float, gamma: float) -> None:
    clients = related(MLP, 3)
    # The last client knows nothing of the first class.
    counts = [[3, 1, 4], [6, 1, 2], [0, 5, 1]]
    result = aggregate(MLP, uploaded(clients, counts), sigma=[sigma], sigma0=[sigma0], gamma=[gamma], sweeps=0)
    networks = [{name: tensor.double().numpy() for name, tensor in one.items()} for one in clients]
    parts = np.array(counts) / np.sum(counts, axis=0)
    expected = by_definition(networks, parts, sigma=sigma, sigma0=sigma0, gamma=gamma)
    assert result.spec is not None
    assert result.spec.widths == tuple(len(expected[f"{layer}.bias"]) for layer in ("fc1", "fc2", "fc3"))
    for name, tensor in result.networks[0].items():
        assert tensor.numpy() == pytest.approx(expected[name], abs=1e-5), name


def test_a_client_that_lacks_a_class_has_no_say_in_it() -> None:
    clients = [drawn(MLP, 1), drawn(MLP, 1)]
    for row, bias in ((clients[1]["fc4.weight"][0], clients[1]["fc4.bias"][:1]), (clients[0]["fc4.weight"][2], None)):
        row.fill_(50.0)
        if bias is not None:
            bias.fill_(50.0)
    (network,) = aggregate(MLP, uploaded(clients, [[4, 2, 0], [0, 2, 3]]), **POINT | {"sigma0": [1e9]}).networks
    assert network["fc4.weight"].abs().max() < 20
    assert torch.allclose(network["fc4.bias"], drawn(MLP, 1)["fc4.bias"], atol=1e-5)


def test_a_larger_gamma_makes_wider_networks() -> None:
    uploads = uploaded([drawn(SPECS[2], seed, 0.5) for seed in range(4)])
    sizes = [
        aggregate(SPECS[2], uploads, **POINT | {"gamma": [gamma]}).details["relative_size"] for gamma in (1e-9, 7, 1e9)
    ]
    assert 1 == sizes[0] < sizes[1] < sizes[2]


def same(one: Parameters, other: Parameters) -> bool:
    return list(one) == list(other) and all(
        one[key].shape == tensor.shape and torch.equal(one[key], tensor) for key, tensor in other.items()
    )


def test_the_grid_keeps_what_is_best_on_the_validation_images() -> None:
    spec = SPECS[2]
    uploads, validation = uploaded(related(spec, 4)), tiny.examples(200, seed=5, spec=spec)
    alone = {}
    for point in product(GRID["gamma"], GRID["sigma"], GRID["sigma0"]):
        settings = dict(zip(("gamma", "sigma", "sigma0"), ([one] for one in point), strict=True))
        result = aggregate(spec, uploads, **settings)
        assert result.spec is not None
        alone[point] = (result, accuracy(result.spec.load(result.networks[0]).eval(), validation))
    scores = [score for _, score in alone.values()]
    assert scores[0] < max(scores)
    chosen = aggregate(spec, uploads, validation=validation, **GRID)
    best = list(alone)[scores.index(max(scores))]
    assert tuple(chosen.details[key] for key in ("gamma", "sigma", "sigma0")) == best
    assert chosen.details["validation_accuracy"] == pytest.approx(max(scores))
    # A combination is the same whether or not others are tried as well.
    assert chosen.spec == alone[best][0].spec
    assert same(chosen.networks[0], alone[best][0].networks[0])


def test_the_default_grid_is_the_authors() -> None:
    chosen = bind_written("pfnm_original", {}, [MLP]).settings
    assert {key: set(getattr(chosen, key)) for key in POINT} == {
        "sigma": {0.1, 0.5, 1},
        "sigma0": {1, 10},
        "gamma": {0.001, 1, 50},
    }


def test_only_several_combinations_need_images() -> None:
    uploads = uploaded(related(MLP, 2))
    bound, alone = bind_written("pfnm_original", POINT, [MLP]), server(MLP, empty())
    bound(alone, uploads)
    assert not bound.validates
    assert not alone.used_validation
    for key, values in GRID.items():
        bound, held = (
            bind_written("pfnm_original", POINT | {key: values}, [MLP]),
            server(MLP, tiny.examples(9, spec=MLP)),
        )
        bound(held, uploads)
        assert bound.validates
        assert held.used_validation
        with pytest.raises(InputError, match="validation images, of which it has none"):
            bound(server(MLP, empty()), uploads)


def test_sweeps_match_all_clients_again() -> None:
    spec = SPECS[2]
    uploads = uploaded(related(spec, 4))
    once, again = (aggregate(spec, uploads, sweeps=sweeps, **POINT) for sweeps in (0, 5))
    assert once.spec is not None
    assert again.spec is not None
    assert not torch.allclose(outputs(once.spec, once.networks[0]), outputs(again.spec, again.networks[0]), rtol=0.01)


def test_the_uploads_stay_as_they_were() -> None:
    uploads, untouched = (uploaded(related(MLP, 3)) for _ in range(2))
    aggregate(MLP, uploads, **POINT)
    for upload, original in zip(uploads, untouched, strict=True):
        for kind in (Weights, LabelCounts):
            before: dict[str, Tensor] = original[kind].tensors
            assert all(torch.equal(upload[kind].tensors[key], tensor) for key, tensor in before.items())


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (ModelSpec("resnet18", Images(1, 8, 8), classes=3), "skip connection"),
        (tiny.LINEAR, "has no hidden layer; allowed: networks with hidden units to match"),
    ],
)
def test_networks_without_a_chain_of_hidden_units_are_refused(spec: ModelSpec, reason: str) -> None:
    with pytest.raises(InputError, match=rf"method 'pfnm_original' can't serve model '{spec.name}': .*{reason}"):
        bind_written("pfnm_original", {}, [spec])


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("sigma", value) for value in ([], [0], [1, -1], [float("nan")], 1)),
        *(("sigma0", value) for value in ([0], [float("inf")])),
        *(("gamma", value) for value in ([0], [1, float("inf")])),
        ("sweeps", -1),
        ("max_units", 0),
        ("prior_mean", float("nan")),
        ("bias_prior_mean", float("inf")),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(setting: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"methods\.pfnm_original\.{setting}"):
        bind_written("pfnm_original", {setting: value}, [tiny.TINY])


def test_networks_without_biases_stay_so() -> None:
    spec = replace(MLP, bias=False)
    result = aggregate(spec, uploaded(related(spec, 3)), **POINT)
    assert result.spec is not None
    assert not result.spec.bias
    assert list(result.networks[0]) == list(tiny.initial(spec))
