from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.layouts import Images
from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.server import Aggregate
from fedfisher_core.models.evaluation import accuracy, logits
from fedfisher_core.models.spec import ModelSpec, Parameters
from fedfisher_core.models.streams import reordered, stream_units, streams
from tests import tiny
from tests.methods.clients import SIZES, aggregate, bind_written, empty, server

P = np.array(SIZES) / sum(SIZES)
CORRECTED = {"correction": [True], "past_correction": [True]}
COMPACT = ModelSpec("compact", Images(1, 16, 16), classes=3, bias=True)
by_spec = pytest.mark.parametrize("spec", [tiny.TINY, tiny.TINY_WITH_BIAS, COMPACT], ids=["no bias", "bias", "compact"])


def uploads_of(networks: Sequence[Parameters], sizes: Sequence[int] = SIZES) -> list[Upload]:
    return [
        Upload(num_examples=size, statistics={Weights: Weights(network)})
        for network, size in zip(networks, sizes, strict=False)
    ]


def different(spec: ModelSpec, count: int = 3) -> list[Parameters]:
    return [tiny.initial(spec, seed=seed) for seed in range(count)]


def fused(networks: Sequence[Parameters], spec: ModelSpec = tiny.TINY, **settings: Any) -> Aggregate:
    return aggregate("otfusion", uploads_of(networks), spec=spec, **({"validation": images(spec)} | settings))


def images(spec: ModelSpec) -> Any:
    return tiny.examples(30, seed=99, spec=spec)


def same(found: Parameters, expected: Parameters, atol: float = 1e-6) -> bool:
    assert list(found) == list(expected)
    return all(torch.allclose(found[key], tensor, atol=atol) for key, tensor in expected.items())


@by_spec
@pytest.mark.parametrize("ground_metric", ["weights", "activations"])
def test_clients_that_differ_in_the_order_of_their_units_return_the_pivot(spec: ModelSpec, ground_metric: str) -> None:
    layers = streams(spec)
    client = tiny.initial(spec)
    generator = torch.Generator().manual_seed(4)
    copies = [
        reordered(client, layers, [torch.randperm(units, generator=generator) for units in stream_units(layers)])
        for _ in range(2)
    ]
    result = fused([client, *copies], spec, ground_metric=ground_metric, **CORRECTED)
    assert not all(torch.equal(copies[0][key], tensor) for key, tensor in client.items())
    assert same(result.networks[0], client)
    assert result.details["moved_units"] > 0
    assert result.details["mass_error"] == 0


def by_definition(
    networks: Sequence[dict[str, np.ndarray]], *, correction: bool, past_correction: bool, classes: bool
) -> dict[str, np.ndarray]:
    """FedFisher's way with OTFusion for the tiny network, layer by layer and unit by unit; client 0 is the pivot."""
    pivot = networks[0]
    mean = {key: P[0] * value for key, value in pivot.items()}
    for p, network in zip(P[1:], networks[1:], strict=True):
        before = None
        for layer, places in (("conv", 9), ("hidden", 9), ("head", 1)):
            weight = network[f"{layer}.weight"]
            flat = weight.reshape(len(weight), -1)
            if before is None:
                aligned = flat.copy()
            else:
                aligned = np.zeros_like(flat)
                for i, j, place in product(*map(range, before.shape), range(places)):
                    aligned[:, j * places + place] += flat[:, i * places + place] * before[i, j]
            theirs = pivot[f"{layer}.weight"].reshape(len(weight), -1)
            distances = ((aligned[:, None] - theirs[None]) ** 2).sum(2)
            if f"{layer}.bias" in network:
                distances += (network[f"{layer}.bias"][:, None] - pivot[f"{layer}.bias"][None]) ** 2
            plan = np.zeros_like(distances)
            plan[linear_sum_assignment(distances)] = 1 if correction else 1 / len(plan)
            kept = layer == "head" and not classes
            plan = np.eye(len(plan)) if kept else plan
            moved = plan.T @ (aligned if past_correction or kept else flat)
            mean[f"{layer}.weight"] = mean[f"{layer}.weight"] + p * moved.reshape(weight.shape)
            if f"{layer}.bias" in network:
                mean[f"{layer}.bias"] = mean[f"{layer}.bias"] + p * plan.T @ network[f"{layer}.bias"]
            before = plan
    return mean


@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize("past_correction", [False, True])
@pytest.mark.parametrize("correction", [False, True])
@pytest.mark.parametrize("spec", [tiny.TINY, tiny.TINY_WITH_BIAS], ids=["no bias", "bias"])
def test_every_candidate_is_what_its_definition_says(
    spec: ModelSpec, correction: bool, past_correction: bool, classes: bool
) -> None:
    networks = different(spec)
    expected = by_definition(
        [{key: tensor.double().numpy() for key, tensor in network.items()} for network in networks],
        correction=correction,
        past_correction=past_correction,
        classes=classes,
    )
    result = fused(
        networks,
        spec,
        correction=[correction],
        past_correction=[past_correction],
        official_class_transport=classes,
    )
    assert same(result.networks[0], {key: torch.from_numpy(value).float() for key, value in expected.items()})


def test_without_correction_the_pivot_is_what_is_left() -> None:
    spec = ModelSpec("mlp", Images(1, 8, 8), classes=4)
    networks = different(spec)
    inputs = tiny.examples(300, spec=spec).inputs
    predicted = logits(spec.load(networks[0]).eval(), inputs).argmax(1)
    agreement = {}
    for correction in (True, False):
        (network,) = fused(networks, spec, correction=[correction], past_correction=[True]).networks
        found = logits(spec.load(network).eval(), inputs).argmax(1)
        agreement[correction] = float((found == predicted).double().mean())
    assert agreement[False] > 0.95 > agreement[True]


def test_the_other_clients_have_no_order() -> None:
    networks = different(tiny.TINY, 4)
    sizes = [40, 25, 10, 30]
    orders = [[0, 1, 2, 3], [0, 3, 1, 2]]
    first, second = (
        aggregate("otfusion", uploads_of([networks[i] for i in order], [sizes[i] for i in order])).networks[0]
        for order in orders
    )
    assert same(first, second)


@pytest.mark.parametrize("ground_metric", ["weights", "activations"])
def test_the_pivot_can_be_chosen(ground_metric: str) -> None:
    uploads = uploads_of(different(tiny.TINY))
    turned = uploads[2:] + uploads[:2]
    settings = CORRECTED | {"ground_metric": ground_metric}
    last = aggregate("otfusion", uploads, pivot=2, **settings).networks[0]
    assert same(last, aggregate("otfusion", turned, **settings).networks[0])
    assert not same(last, aggregate("otfusion", uploads, **settings).networks[0])


def test_a_pivot_that_is_no_client_is_refused() -> None:
    with pytest.raises(InputError, match=r"pivot=3: allowed: 0 to 2"):
        fused(different(tiny.TINY), pivot=3)


def test_the_corrections_are_chosen_on_the_validation_set() -> None:
    networks, validation = different(tiny.TINY), tiny.examples(200, seed=99)
    result = fused(networks, validation=validation)
    scores = {}
    for correction, past in product([True, False], repeat=2):
        one = fused(networks, correction=[correction], past_correction=[past])
        scores[correction, past] = accuracy(tiny.TINY.load(one.networks[0]).eval(), validation)
    assert len(set(scores.values())) > 1
    best = max(scores, key=lambda key: scores[key])
    assert (result.details["correction"], result.details["past_correction"]) == best
    assert result.details["validation_accuracy"] == pytest.approx(max(scores.values()))


def test_the_normalisation_is_chosen_beside_the_correction() -> None:
    networks, validation = different(tiny.TINY), tiny.examples(200, seed=99)
    grid: dict[str, Any] = {"normalisation": ["log", "max", "none"], "correction": [True, False]}
    rest: dict[str, Any] = {"past_correction": [True], "solver": "sinkhorn", "reg": 0.1}
    alone, scores = {}, {}
    for normalisation, correction in product(*grid.values()):
        one = fused(networks, normalisation=[normalisation], correction=[correction], **rest).networks[0]
        alone[normalisation, correction] = one
        scores[normalisation, correction] = accuracy(tiny.TINY.load(one).eval(), validation)
    best = max(scores, key=lambda key: scores[key])
    assert best != next(iter(scores))
    result = fused(networks, validation=validation, **grid, **rest)
    normalisation, correction = best
    assert result.details[f"normalisation_{normalisation}"] == 1
    assert result.details["correction"] == correction
    assert result.details["validation_accuracy"] == pytest.approx(max(scores.values()))
    assert same(result.networks[0], alone[best], atol=0)


def test_only_what_is_chosen_or_compared_on_images_needs_them() -> None:
    uploads = uploads_of(different(tiny.TINY))
    alone = server(validation=empty())
    bound = bind_written("otfusion", CORRECTED, [tiny.TINY])
    bound(alone, uploads)
    assert not alone.used_validation
    assert not bound.validates
    for settings in ({}, CORRECTED | {"ground_metric": "activations"}, CORRECTED | {"normalisation": ["log", "none"]}):
        with pytest.raises(InputError, match="validation images, of which it has none"):
            bind_written("otfusion", settings, [tiny.TINY])(server(validation=empty()), uploads)
        with_images, bound = server(), bind_written("otfusion", settings, [tiny.TINY])
        bound(with_images, uploads)
        assert with_images.used_validation
        assert bound.validates


def test_activations_are_of_as_many_images_as_asked_for() -> None:
    networks = different(tiny.TINY)
    validation = tiny.examples(30, seed=99)
    few = type(validation)(inputs=validation.inputs[:1], labels=validation.labels[:1])
    settings = CORRECTED | {"ground_metric": "activations"}
    limited = fused(networks, validation=validation, activation_samples=1, **settings).networks[0]
    assert same(limited, fused(networks, validation=few, **settings).networks[0])
    assert not same(limited, fused(networks, validation=validation, **settings).networks[0])


SETTINGS: list[dict[str, Any]] = [
    {},
    {"ground_metric": "activations"},
    {"solver": "sinkhorn", "iterations": 20},
    {"solver": "sinkhorn", "iterations": 20, "reg": 1e-9, "squared": False},
    {"solver": "sinkhorn", "iterations": 20, "normalisation": ["median"]},
    {"official_class_transport": True},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_dead_clients_give_numbers(settings: dict[str, Any]) -> None:
    alive, *others = different(tiny.TINY_WITH_BIAS)
    others[0]["hidden.weight"][:3] = 0
    others[0]["hidden.bias"][:3] = 0
    others[1] = {key: torch.zeros_like(tensor) for key, tensor in others[1].items()}
    for networks in ([alive, *others], others[::-1], [others[1]] * 3):
        (network,) = fused(networks, tiny.TINY_WITH_BIAS, **settings).networks
        assert all(torch.isfinite(tensor).all() for tensor in network.values())


@pytest.mark.parametrize("settings", SETTINGS)
def test_one_client_keeps_its_model(settings: dict[str, Any]) -> None:
    client = tiny.initial()
    result = aggregate("otfusion", uploads_of([client], [7]), **settings)
    assert same(result.networks[0], client)
    assert result.details["moved_units"] == 0


def test_sinkhorn_of_little_entropy_is_near_the_exact_transport() -> None:
    client, layers = tiny.initial(), streams(tiny.TINY)
    copy = reordered(client, layers, [torch.arange(units).flip(0) for units in stream_units(layers)])
    networks = [client, {key: 1.1 * tensor for key, tensor in copy.items()}]
    exact = fused(networks, **CORRECTED)
    near = fused(networks, solver="sinkhorn", reg=0.01, **CORRECTED)
    blurred = fused(networks, solver="sinkhorn", reg=10.0, **CORRECTED)
    assert gap(near.networks[0], exact.networks[0]) < 1e-3
    assert gap(blurred.networks[0], exact.networks[0]) > 0.05
    assert near.details["mass_error"] < 1e-3
    assert blurred.details["moved_units"] < near.details["moved_units"] == pytest.approx(exact.details["moved_units"])


def gap(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    return max(float((one[key] - tensor).abs().max()) for key, tensor in other.items())


@pytest.mark.parametrize("name", ["mlp", "lenet", "cnn", "compact", "resnet18"])
def test_networks_of_the_papers_are_served(name: str) -> None:
    assert bind_written("otfusion", {}, [ModelSpec(name, Images(3, 32, 32), classes=10)]).method.name == "otfusion"
