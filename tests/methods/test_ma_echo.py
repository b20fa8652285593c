from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedfisher_core.client.statistics.null_space import NullSpaceProjection, OfficialProjection
from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload, decode, encode, upload_schema
from fedfisher_core.data.layouts import Images
from fedfisher_core.engine.errors import InputError
from fedfisher_core.fisher.layers import to_matrix
from fedfisher_core.models.evaluation import accuracy
from fedfisher_core.models.spec import ModelSpec, Parameters
from fedfisher_core.models.streams import chain, reordered
from fedfisher_core.settings import WireSettings
from tests import tiny
from tests.methods.clients import (
    SIZES,
    aggregate,
    bind_written,
    empty,
    made_up_uploads,
    projection,
    server,
    trained_uploads,
)
from tests.methods.echo import by_bias, close, different, replaced

METHODS = ["ma_echo", "ma_echo_official", "ma_echo_ot"]
by_method = pytest.mark.parametrize("name", METHODS)
LAYERS = ("conv", "hidden", "head")
VARIANTS: list[dict[str, Any]] = [
    {},
    {"weights": "qp"},
    {"local_update": "algorithm_1"},
    {"local_update": "algorithm_1", "weights": "qp", "penalty": 200.0},
    {"normalise": True, "step_size": 0.05},
    {"local_update": "algorithm_1", "normalise": True, "step_size": 0.05},
]
by_variant = pytest.mark.parametrize("settings", VARIANTS, ids=str)


@pytest.fixture(scope="module")
def clients() -> list[Upload]:
    return trained_uploads(tiny.TINY_WITH_BIAS)


def constant(upload: Upload, kind: type[Statistic], value: float) -> Upload:
    """Make all matrices of a statistic multiples of the identity."""
    return replaced(upload, kind.of({name: value * torch.eye(len(one)) for name, one in upload[kind].tensors.items()}))


def mean(uploads: Sequence[Upload]) -> Parameters:
    """The mean that does not look at the numbers of examples."""
    return {
        key: torch.stack([upload[Weights].tensors[key] for upload in uploads]).mean(0)
        for key in uploads[0][Weights].tensors
    }


@by_bias
@by_variant
def test_clients_that_see_nothing_are_averaged(settings: dict[str, Any], spec: ModelSpec) -> None:
    uploads = [constant(upload, NullSpaceProjection, 0.0) for upload in different(spec)]
    result = aggregate("ma_echo", uploads, spec=spec, **settings)
    assert close(result.networks[0], mean(uploads), atol=1e-7)
    assert result.details["distance"] == 0


@by_bias
@by_variant
def test_a_single_client_keeps_its_model(settings: dict[str, Any], spec: ModelSpec) -> None:
    uploads = different(spec)[:1]
    for name in ("ma_echo", "ma_echo_ot"):
        assert close(aggregate(name, uploads, spec=spec, **settings).networks[0], uploads[0][Weights].tensors)


@by_bias
@by_variant
def test_the_order_of_clients_does_not_matter(settings: dict[str, Any], spec: ModelSpec) -> None:
    uploads = different(spec)
    first = aggregate("ma_echo", uploads, spec=spec, **settings).networks[0]
    assert close(first, aggregate("ma_echo", uploads[::-1], spec=spec, **settings).networks[0], atol=1e-4)
    official = [aggregate("ma_echo_official", one, spec=spec).networks[0] for one in (uploads, uploads[::-1])]
    assert close(*official, atol=1e-4)


@by_bias
def test_nothing_is_further_from_the_clients_where_their_data_are(spec: ModelSpec) -> None:
    uploads = different(spec)
    result = aggregate("ma_echo", uploads, spec=spec, steps=3000)

    def distance(parameters: Parameters) -> float:
        apart = [
            (to_matrix(parameters, layer) - to_matrix(one[Weights].tensors, layer))
            @ one[NullSpaceProjection].tensors[layer]
            for one in uploads
            for layer in LAYERS
        ]
        return sum(float(one.square().sum()) for one in apart) / len(uploads)

    found = distance(result.networks[0])
    assert result.details["distance"] == pytest.approx(found, rel=1e-4)
    assert result.details["distance_at_start"] == pytest.approx(distance(mean(uploads)), rel=1e-4)
    assert found < 0.99 * distance(mean(uploads))
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        other = {
            key: tensor + 0.01 * torch.randn(tensor.shape, generator=generator)
            for key, tensor in result.networks[0].items()
        }
        assert distance(other) > found


def one_step(uploads: Sequence[Upload], layer: str, kind: type[Statistic]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The start, and each client's move away from it where its data see it."""
    matrices = [to_matrix(one[Weights].tensors, layer).double().numpy() for one in uploads]
    start = np.mean(matrices, axis=0)
    moves = [(start - w) @ one[kind].tensors[layer].double().numpy() for w, one in zip(matrices, uploads, strict=True)]
    return start, moves


@by_bias
def test_one_step_of_every_layer_the_last_included(spec: ModelSpec) -> None:
    uploads = different(spec)
    (network,) = aggregate("ma_echo", uploads, spec=spec, steps=1, step_size=0.3).networks
    for layer in LAYERS:
        start, moves = one_step(uploads, layer, NullSpaceProjection)
        expected = start - 0.3 * 2 / 3 * sum(moves)
        assert to_matrix(network, layer).numpy() == pytest.approx(expected, abs=1e-5)
        assert np.abs(expected - start).max() > 1e-3


def test_the_programme_weights_clients_by_its_cap() -> None:
    uploads = different(tiny.TINY)
    found = {cap: aggregate("ma_echo", uploads, weights="qp", cap=cap).networks[0] for cap in (0.1, 0.5, 1.0)}
    assert close(found[0.1], aggregate("ma_echo", uploads).networks[0], atol=1e-6)
    assert not close(found[0.5], found[0.1], atol=1e-3)


@by_bias
def test_the_starts_of_the_paper(spec: ModelSpec) -> None:
    uploads = [constant(upload, NullSpaceProjection, 0.0) for upload in different(spec)]
    drawn = spec.initialise(torch.Generator().manual_seed(0))
    expected = {"mean": mean(uploads), "client": uploads[0][Weights].tensors, "random": drawn}
    for start, parameters in expected.items():
        (network,) = aggregate("ma_echo", uploads, spec=spec, start=start).networks
        for key, tensor in network.items():
            own = mean(uploads) if key.startswith("head") else parameters
            assert torch.allclose(tensor, own[key], atol=1e-7), (start, key)


def test_all_starts_end_alike_where_data_fill_the_space() -> None:
    uploads = [constant(upload, NullSpaceProjection, 1.0) for upload in different(tiny.TINY)]
    for start in ("mean", "client", "random"):
        assert close(aggregate("ma_echo", uploads, start=start).networks[0], mean(uploads))


@by_method
def test_rows_with_nowhere_to_go_are_finite_where_steps_are_normalised(name: str) -> None:
    same = tiny.initial(tiny.TINY_WITH_BIAS)
    same["hidden.weight"][2] = 0
    same["hidden.bias"][2] = 0
    uploads = made_up_uploads([same] * 3, tiny.TINY_WITH_BIAS)
    settings = {"normalise": True, "step_size": 0.05}
    assert close(aggregate(name, uploads, spec=tiny.TINY_WITH_BIAS, **settings).networks[0], same)


@by_bias
def test_matching_undoes_another_order_of_a_clients_units(spec: ModelSpec) -> None:
    generator = torch.Generator().manual_seed(3)
    base = tiny.initial(spec)
    near = [
        {key: one + 0.01 * torch.randn(one.shape, generator=generator) for key, one in base.items()} for _ in range(3)
    ]
    orders = [torch.tensor([1, 0]), torch.tensor([3, 0, 4, 1, 2])]
    layers = chain(spec)
    examples = [tiny.examples(30, seed=seed) for seed in range(3)]

    def upload(parameters: Parameters, client: int) -> Upload:
        local = tiny.local(spec.load(parameters), examples[client])
        kinds: tuple[type[Statistic], ...] = (Weights, NullSpaceProjection)
        return Upload(SIZES[client], {kind: kind.compute(local) for kind in kinds})

    straight = [upload(one, client) for client, one in enumerate(near)]
    shuffled = [straight[0], upload(reordered(near[1], layers, orders), 1), straight[2]]
    expected = aggregate("ma_echo", straight, spec=spec).networks[0]
    assert not close(aggregate("ma_echo", shuffled, spec=spec).networks[0], expected, atol=1e-2)
    assert close(aggregate("ma_echo_ot", shuffled, spec=spec).networks[0], expected, atol=1e-4)
    # Around the client with the other order, the same network comes out in that order.
    pivoted = aggregate("ma_echo_ot", shuffled, spec=spec, pivot=1).networks[0]
    assert close(pivoted, reordered(expected, layers, orders), atol=1e-4)


def test_a_pivot_that_is_no_client_is_refused() -> None:
    with pytest.raises(InputError, match=r"pivot=3: allowed: 0 to 2, one of the clients"):
        aggregate("ma_echo_ot", different(tiny.TINY), pivot=3)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ma_echo", {"step_size": 1.01}),
        ("ma_echo", {"penalty": 0}),
        ("ma_echo", {"penalty": float("inf")}),
        ("ma_echo", {"cap": 0}),
        ("ma_echo_official", {"step_size": 2}),
        ("ma_echo_ot", {"start": "initial"}),
    ],
)
def test_settings_that_need_not_converge_are_refused(name: str, settings: dict[str, Any]) -> None:
    (key,) = settings
    with pytest.raises(InputError, match=rf"methods\.{name}\.{key}="):
        bind_written(name, settings, [tiny.TINY])


RANKED = ["ma_echo", "ma_echo_official"]
by_ranked_method = pytest.mark.parametrize("name", RANKED)


def sizes(spec: ModelSpec) -> list[int]:
    return [shape[0] for shape in NullSpaceProjection.shapes(spec).values()]


@by_bias
@by_ranked_method
def test_projections_of_full_rank_are_the_whole_ones(name: str, spec: ModelSpec) -> None:
    uploads = different(spec)
    whole = aggregate(name, uploads, spec=spec).networks[0]
    full = aggregate(name, uploads, spec=spec, ranks=sizes(spec)).networks[0]
    assert all(torch.equal(full[key], tensor) for key, tensor in whole.items())


@by_bias
def test_ranks_keep_what_the_singular_value_decomposition_says(spec: ModelSpec) -> None:
    uploads, ranks = different(spec), [1, 2, 3]

    def of_rank(matrix: Tensor, rank: int) -> Tensor:
        left, singular, right = np.linalg.svd(matrix.double().numpy())
        return torch.from_numpy((left[:, :rank] * singular[:rank]) @ right[:rank]).float()

    def cut(upload: Upload) -> Upload:
        by_layer = dict(zip(LAYERS, ranks, strict=True))
        spans = {key: of_rank(one, by_layer[key]) for key, one in upload[NullSpaceProjection].tensors.items()}
        spaces = {}
        for key, one in upload[OfficialProjection].tensors.items():
            eye = torch.eye(len(one))
            spaces[key] = eye - of_rank(eye - one, by_layer[key])
        return replaced(upload, NullSpaceProjection(spans), OfficialProjection(spaces))

    for name in RANKED:
        found = aggregate(name, uploads, spec=spec, ranks=ranks).networks[0]
        assert close(found, aggregate(name, [cut(one) for one in uploads], spec=spec).networks[0])
        assert not close(found, aggregate(name, uploads, spec=spec).networks[0], atol=1e-3)


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ([1, 2], r"ranks=\[1, 2\]: allowed: 3 numbers, one for each layer: conv, hidden, head"),
        ([1, 1, 900], r"ranks=\[1, 1, 900\]: 900 for layer 'head'; allowed: 1 to 5"),
        ([1, 0, 1], r"ranks\.1=0: Input should be greater than 0"),
    ],
    ids=str,
)
@by_ranked_method
def test_ranks_that_no_projection_has_are_refused(name: str, ranks: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        bind_written(name, {"ranks": ranks}, [tiny.TINY])


@pytest.mark.drawn(8)
@pytest.mark.parametrize("model", ["mlp", "lenet", "cnn", "compact", "resnet18"])
@pytest.mark.parametrize("bias", [False, True])
@by_method
def test_every_network_is_served(name: str, bias: bool, model: str) -> None:
    bind_written(name, {}, [ModelSpec(model, Images(1, 16, 16), classes=4, bias=bias)])


@by_method
def test_the_validation_set_is_not_used(name: str, clients: list[Upload]) -> None:
    held = server(tiny.TINY_WITH_BIAS, validation=empty())
    bind_written(name, {}, [tiny.TINY_WITH_BIAS])(held, clients)
    assert not held.used_validation


@pytest.mark.parametrize("budget", ["none", "fedavg"])
@by_method
def test_trained_clients_agree_better_than_their_mean(name: str, budget: str, clients: list[Upload]) -> None:
    """Also from what is left of their uploads within a budget."""
    spec = tiny.TINY_WITH_BIAS
    bound = bind_written(name, {}, [spec], WireSettings(budget=budget))
    kinds = bound.method.uploads
    schema = upload_schema(bound.uploads, spec, bound.wire)
    received = [
        decode(
            encode(schema, [one[kind] for kind in kinds], num_examples=one.num_examples),
            schema,
            kinds,
            torch.device("cpu"),
        )
        for one in clients
    ]
    (network,) = bound(server(spec), received).networks
    test = tiny.examples(600, seed=50)
    assert accuracy(spec.load(network), test) > accuracy(spec.load(mean(clients)), test)


def scaled_projection(matrix: Tensor, seed: int) -> Tensor:
    return projection(len(matrix), torch.Generator().manual_seed(seed))


@by_variant
def test_many_steps_stay_finite_whatever_the_projections(settings: dict[str, Any]) -> None:
    uploads = [
        replaced(
            one,
            NullSpaceProjection(
                {key: scaled_projection(matrix, i) for key, matrix in one[NullSpaceProjection].tensors.items()}
            ),
        )
        for i, one in enumerate(different(tiny.TINY))
    ]
    (network,) = aggregate("ma_echo", uploads, steps=500, **({"step_size": 1.0} | settings)).networks
    largest = max(float(one[Weights].tensors[key].abs().max()) for one in uploads for key in network)
    assert max(float(tensor.abs().max()) for tensor in network.values()) < 5 * largest
