from itertools import permutations

import pytest
import torch
from torch import Tensor

from fedfisher_core.data.layouts import Images
from fedfisher_core.methods.matching.layers import align, align_input_matrix, incoming, transports
from fedfisher_core.methods.matching.transport import Transport, activation_distances
from fedfisher_core.models.spec import ModelSpec, Parameters
from fedfisher_core.models.streams import StreamLayer, reordered, stream_units, streams
from tests import tiny
from tests.models import test_streams  # noqa: F401

BY_HAND = (
    StreamLayer("hidden", units=2, inputs=2, places=1, bias=False, reads=None, writes=0),
    StreamLayer("head", units=1, inputs=2, places=1, bias=False, reads=0, writes=None),
)
PIVOT = {"hidden.weight": torch.eye(2), "head.weight": torch.tensor([[1.0, 1.0]])}
OTHER = {"hidden.weight": torch.tensor([[0.0, 3.0], [2.0, 0.0]]), "head.weight": torch.tensor([[5.0, 7.0]])}


def spec_of(name: str, *, bias: bool = True) -> ModelSpec:
    return ModelSpec(name, Images(1, 16, 16), classes=4, bias=bias)


def shuffled(parameters: Parameters, layers: tuple[StreamLayer, ...], *, seed: int = 1) -> Parameters:
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(units, generator=generator) for units in stream_units(layers)]
    orders[0] = torch.arange(len(orders[0])).roll(1)
    return reordered(parameters, layers, orders)


def by_activations(spec: ModelSpec, ours: Parameters, pivot: Parameters) -> dict[str, Tensor]:
    inputs = torch.randn(40, *spec.inputs.shape, generator=torch.Generator().manual_seed(3))
    return activation_distances(spec.load(ours).eval(), spec.load(pivot).eval(), inputs, streams(spec))


def test_two_hidden_units_by_hand() -> None:
    plans = transports(OTHER, PIVOT, BY_HAND)
    assert torch.equal(plans[0], torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    assert torch.equal(plans[1], torch.eye(1))
    aligned = align(OTHER, BY_HAND, plans)
    assert torch.equal(aligned["hidden.weight"], torch.tensor([[2.0, 0.0], [0.0, 3.0]]))
    assert torch.equal(aligned["head.weight"], torch.tensor([[7.0, 5.0]]))


def test_without_correction_every_unit_receives_its_part_of_mass_1() -> None:
    plans = transports(OTHER, PIVOT, BY_HAND, correction=False)
    assert torch.equal(plans[0], torch.tensor([[0.0, 0.5], [0.5, 0.0]]))
    aligned = align(OTHER, BY_HAND, plans)
    assert torch.equal(aligned["hidden.weight"], torch.tensor([[1.0, 0.0], [0.0, 1.5]]))
    assert torch.equal(aligned["head.weight"], torch.tensor([[3.5, 2.5]]))
    assert torch.equal(align(OTHER, BY_HAND, plans, in_place=["head"])["head.weight"], OTHER["head.weight"])


@pytest.mark.drawn(8)
@pytest.mark.parametrize("metric", ["weights", "activations"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", ["tiny", "mlp", "lenet", "compact", "gated_skip"])
def test_another_order_of_the_units_is_undone(name: str, bias: bool, metric: str) -> None:
    spec = spec_of(name, bias=bias)
    pivot, layers = tiny.initial(spec), streams(spec)
    other = shuffled(pivot, layers)
    distances = by_activations(spec, other, pivot) if metric == "activations" else None
    found = align(other, layers, transports(other, pivot, layers, distances=distances))
    assert not torch.equal(other[f"{layers[0].name}.weight"], pivot[f"{layers[0].name}.weight"])
    assert list(found) == list(pivot)
    assert all(torch.equal(found[key], tensor) for key, tensor in pivot.items())


def test_another_order_of_a_residual_network_is_undone() -> None:
    spec = ModelSpec("resnet18", Images(1, 8, 8), classes=4)
    pivot, layers = tiny.initial(spec), streams(spec)
    other = shuffled(pivot, layers)
    found = align(other, layers, transports(other, pivot, layers))
    assert not torch.equal(other["layer4.1.conv2.weight"], pivot["layer4.1.conv2.weight"])
    assert all(torch.equal(found[key], tensor) for key, tensor in pivot.items())


@pytest.mark.parametrize("metric", ["weights", "activations"])
@pytest.mark.parametrize("name", ["tiny", "lenet", "gated_skip", "tied_outputs"])
def test_an_aligned_network_computes_what_it_did(name: str, metric: str) -> None:
    spec = spec_of(name)
    ours, pivot = (tiny.initial(spec, seed=seed) for seed in (0, 1))
    layers = streams(spec)
    distances = by_activations(spec, ours, pivot) if metric == "activations" else None
    found = align(ours, layers, transports(ours, pivot, layers, distances=distances))
    inputs = torch.randn(5, 1, 16, 16, generator=torch.Generator().manual_seed(2))
    assert torch.allclose(spec.load(found)(inputs), spec.load(ours)(inputs), atol=1e-5)


def best_order(cost: Tensor) -> tuple[int, ...]:
    """Which row goes to each column, found by trying all."""
    units = range(len(cost))
    return min(permutations(units), key=lambda order: float(sum(cost[order[j], j] for j in units)))


def apart(ours: Tensor, theirs: Tensor) -> Tensor:
    return torch.tensor([[float(((one - other) ** 2).sum()) for other in theirs] for one in ours])


def test_layers_that_add_to_the_same_units_are_matched_together() -> None:
    spec = spec_of("gated_skip", bias=False)
    layers = streams(spec)
    ours, pivot = (tiny.initial(spec, seed=seed) for seed in (0, 1))
    # Without the layer that reads the units themselves, the first sweep would choose another order.
    ours["second.weight"] *= 3
    pivot["second.weight"] *= 3
    alone = apart(ours["first.weight"], pivot["first.weight"]) + apart(ours["gate.weight"], pivot["gate.weight"])
    first = list(best_order(alone))
    final = list(best_order(alone + apart(ours["second.weight"][:, first], pivot["second.weight"])))
    assert first != final
    plans = transports(ours, pivot, layers)
    for layer, plan in zip(layers[:-1], plans[:-1], strict=True):
        assert layer.writes == 0
        assert plan.argmax(0).tolist() == final
    assert torch.equal(align(ours, layers, plans)["second.weight"], ours["second.weight"][final][:, final])


def test_the_bias_is_part_of_a_unit() -> None:
    spec = spec_of("mlp")
    layers = streams(spec)
    ours, pivot = tiny.initial(spec), tiny.initial(spec)
    # Units that differ in nothing but their bias.
    for network in (ours, pivot):
        network["fc1.weight"][:] = 1
        network["fc1.bias"] = torch.arange(400).float()
    ours["fc1.bias"] = ours["fc1.bias"].flip(0)
    (plan, *_) = transports(ours, pivot, layers)
    assert torch.equal(plan, torch.eye(400).flip(0))


def test_outputs_are_transported_when_asked_for() -> None:
    spec = spec_of("tiny")
    layers = streams(spec)
    pivot = tiny.initial(spec)
    other = dict(pivot) | {key: tensor.flip(0) for key, tensor in pivot.items() if key.startswith("head.")}
    assert torch.equal(transports(other, pivot, layers)[-1], torch.eye(4))
    assert torch.equal(transports(other, pivot, layers, outputs=True)[-1], torch.eye(4).flip(0))


@pytest.mark.parametrize("bias", [False, True])
def test_matrices_over_inputs_move_with_the_weights(bias: bool) -> None:
    spec = spec_of("lenet", bias=bias)
    layers = streams(spec)
    ours, pivot = (tiny.initial(spec, seed=seed) for seed in (0, 1))
    plans = transports(ours, pivot, layers, transport=Transport(reg=0.1, iterations=200))
    befores = incoming(layers, plans)
    assert befores[0] is None
    aligned = align(ours, layers, plans)
    generator = torch.Generator().manual_seed(0)
    for layer, before, after in zip(layers, befores, plans, strict=True):
        columns = layer.inputs * layer.places
        mover = torch.eye(columns) if before is None else torch.kron(before, torch.eye(layer.places))
        weight = ours[f"{layer.name}.weight"].flatten(1)
        assert torch.allclose(aligned[f"{layer.name}.weight"].flatten(1), after.T @ weight @ mover, atol=1e-6)
        mover = torch.block_diag(mover, torch.eye(1)) if bias else mover
        matrix = torch.randn(len(mover), len(mover), generator=generator)
        assert torch.allclose(align_input_matrix(matrix, layer, before), mover.T @ matrix @ mover, atol=1e-4)
