import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.layouts import Images
from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.co_boosting import HardObjective, boosted, diversified
from fedfisher_core.methods.distillation.student import Teacher, distillation_loss
from fedfisher_core.methods.server import Aggregate
from fedfisher_core.methods.shared.averaging import mean_parameters
from fedfisher_core.models.spec import ModelSpec, Parameters
from tests import tiny
from tests.methods.clients import bind_written, empty, server, trained_uploads
from tests.models.test_batch_norm import SPEC as BATCH_NORM

QUICK: dict[str, Any] = {"epochs": 3, "generator_steps": 3, "images": 12, "latent": 8, "batch_size": 8}


@pytest.fixture(scope="module")
def clients() -> list[Upload]:
    return trained_uploads()


def co_boosting(
    uploads: Sequence[Upload], *, spec: ModelSpec = tiny.TINY, dataset: DatasetSpec = tiny.TINY_DATA, **settings: Any
) -> Aggregate:
    bound = bind_written("co_boosting", QUICK | settings, [spec])
    return bound(server(spec, validation=empty(), dataset=dataset), uploads)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def same(one: Parameters, other: Parameters) -> bool:
    return list(one) == list(other) and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("hardness", [0.0, 1.0, 2.5])
def test_images_are_weighted_by_how_hard_they_are(hardness: float) -> None:
    student, teacher, labels = drawn(9, 4, seed=1), 2 * drawn(9, 4, seed=2).requires_grad_(), torch.arange(9) % 4
    objective = HardObjective(classes=0.7, hardness=hardness, batch_norm=0.2, adversarial=0.4)
    expected = 0.2 * 1.5
    slopes = torch.zeros(9, 4, dtype=torch.float64)
    for row, label in enumerate(labels.tolist()):
        probabilities = teacher[row].detach().softmax(0)
        weight = (1 - probabilities[label].item()) ** hardness
        expected -= 0.7 * weight * math.log(probabilities[label].item()) / 9
        # The weights are constants: the slope is that of the cross-entropy.
        slopes[row] = 0.7 * weight * (probabilities - functional.one_hot(labels[row], 4)) / 9
        soft, target = (student[row] / 3).softmax(0), (teacher[row].detach() / 3).softmax(0)
        expected -= 0.4 * 9 * (target * (target / soft).log()).sum().item() / 9
    found = objective(student, teacher, labels, 1.5)
    assert found.item() == pytest.approx(expected, rel=1e-9)
    alone = HardObjective(classes=0.7, hardness=hardness, batch_norm=0.0, adversarial=0.0)
    (gradient,) = torch.autograd.grad(alone(student, teacher, labels, 0.0), teacher)
    assert torch.allclose(gradient, slopes, atol=1e-12)


def entropy(weights: Tensor, outputs: Tensor, labels: Tensor) -> float:
    mean = sum(weight * one for weight, one in zip(weights / weights.sum(), outputs, strict=True))
    return functional.cross_entropy(mean, labels).item()


def test_weights_move_down_the_slope_of_the_ensembles_loss() -> None:
    weights, outputs, labels = torch.tensor([0.2, 0.5, 0.3]).double(), 2 * drawn(3, 20, 4), torch.arange(20) % 4
    step = 1e-4
    moved = boosted(weights, outputs, labels, step)
    for client in range(3):
        up, down = weights.clone(), weights.clone()
        up[client] += 1e-6
        down[client] -= 1e-6
        slope = entropy(up, outputs, labels) - entropy(down, outputs, labels)
        assert (moved - weights)[client].item() == pytest.approx(-math.copysign(step, slope))
    assert entropy(moved, outputs, labels) < entropy(weights, outputs, labels)


@pytest.mark.parametrize("seed", range(5))
def test_weights_stay_within_their_bounds_and_never_all_vanish(seed: int) -> None:
    weights, labels = torch.full((4,), 0.25).double(), torch.arange(6) % 3
    for step in range(60):
        weights = boosted(weights, 3 * drawn(4, 6, 3, seed=100 * seed + step), labels, 0.4)
        assert weights.min() >= 0
        assert weights.max() <= 1
        assert weights.sum() > 0


@pytest.mark.parametrize("clients", [3, 5, 10])
def test_weights_of_equal_clients_stay_where_they_are(clients: int) -> None:
    # In floating point their slope is rounding, whose sign would move all of them, in the end to zero.
    start = torch.full((clients,), 1 / clients)
    weights, labels = start, torch.arange(32) % 10
    for step in range(60):
        outputs = (3 * drawn(32, 10, seed=step)).float().expand(clients, 32, 10)
        weights = boosted(weights, outputs, labels, 0.01)
    assert torch.equal(weights, start)


def test_a_client_that_is_right_gains_weight_on_one_that_is_wrong() -> None:
    labels = torch.arange(12) % 3
    right = 4 * functional.one_hot(labels, 3).double()
    moved = boosted(torch.tensor([0.5, 0.5]).double(), torch.stack([right, -right]), labels, 0.1)
    assert moved.tolist() == pytest.approx([0.6, 0.4])


def test_inputs_move_by_a_signed_step_along_the_drawn_direction() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double().eval()
    inputs = drawn(6, 1, 2, 2)
    size = 1e-4
    moved = diversified(network, inputs, size, torch.Generator().manual_seed(3))
    assert torch.allclose((moved - inputs).abs(), torch.full_like(inputs, size), rtol=1e-9)
    # The direction is what the generator gives next.
    direction = 2 * torch.rand(6, 3, generator=torch.Generator().manual_seed(3)).double() - 1
    for image in range(6):
        for pixel in range(4):
            near = inputs[[image]].clone()
            near.view(-1)[pixel] += 1e-6
            slope = (
                direction[image]
                @ ((network(near) / 4).softmax(1) - (network(inputs[[image]]) / 4).softmax(1))[0].detach()
            )
            assert torch.sign(moved - inputs)[image].view(-1)[pixel] == torch.sign(slope)
    assert not moved.requires_grad
    assert all(parameter.grad is None for parameter in network.parameters())


def test_a_step_may_differ_by_channel() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(8, 3)).double().eval()
    inputs, sizes = drawn(5, 2, 2, 2), torch.tensor([0.1, 0.3]).reshape(-1, 1, 1)
    moved = (diversified(network, inputs, sizes, torch.Generator().manual_seed(0)) - inputs).abs()
    assert torch.allclose(moved, sizes.double().expand_as(moved), atol=1e-12)


def test_the_student_comes_nearer_to_the_ensemble(clients: list[Upload]) -> None:
    (network,) = co_boosting(clients, epochs=15, learning_rate=0.1, weight_step=0.0).networks
    teacher = Teacher([tiny.TINY.load(upload[Weights].tensors).eval() for upload in clients], [1 / 3] * 3)
    inputs = tiny.examples(60, seed=5).inputs

    def distance(parameters: Parameters) -> float:
        with torch.no_grad():
            return distillation_loss(tiny.TINY.load(parameters)(inputs), teacher(inputs), 4.0).item()

    assert distance(network) < 0.7 * distance(tiny.initial())


def test_the_distance_of_statistics_is_a_mean_over_clients() -> None:
    upload = Upload(10, {Weights: Weights(tiny.initial(BATCH_NORM, seed=1))})
    settings = {"epochs": 1, "class_loss": 0.0, "adversarial_loss": 0.0, "batch_norm_loss": 1.0}
    one, two = (co_boosting([upload] * count, spec=BATCH_NORM, **settings) for count in (1, 2))
    assert one.details["synthesis_loss"] > 0
    assert two.details["synthesis_loss"] == pytest.approx(one.details["synthesis_loss"], rel=1e-5)


def test_a_client_that_knows_nothing_loses_weight(clients: list[Upload]) -> None:
    unlike = {name: -tensor for name, tensor in clients[0][Weights].tensors.items()}
    uploads = [clients[0], Upload(clients[0].num_examples, {Weights: Weights(unlike)})]
    details = co_boosting(uploads, epochs=6, images=24, weight_step=0.05).details
    assert details["largest_share"] > 0.6
    assert details["smallest_share"] == pytest.approx(1 - details["largest_share"], abs=1e-6)


def test_weights_stay_equal_without_images_and_without_steps(clients: list[Upload]) -> None:
    for settings in ({"epochs": 1}, {"weight_step": 0.0}):
        details = co_boosting(clients, **settings).details
        assert details["smallest_share"] == pytest.approx(1 / 3)
        assert details["largest_share"] == pytest.approx(1 / 3)
    assert co_boosting(clients, epochs=2, batch_size=12).details["largest_share"] > 0.336


def test_one_client_teaches_alone(clients: list[Upload]) -> None:
    # The student starts as the only client, and has nothing to learn from it.
    made = co_boosting(clients[:1], start="fedavg", weight_decay=0.0)
    for name, tensor in clients[0][Weights].tensors.items():
        assert torch.allclose(made.networks[0][name], tensor, atol=1e-3), name
    assert made.details["smallest_share"] == made.details["largest_share"] == 1


def test_the_student_starts_where_it_is_told(clients: list[Upload]) -> None:
    for start, parameters in {"fedavg": mean_parameters(clients), "initial": tiny.initial()}.items():
        (network,) = co_boosting(clients, start=start, learning_rate=1e-6, epochs=1).networks
        for name, tensor in parameters.items():
            assert torch.allclose(network[name], tensor, atol=1e-4), (start, name)


def test_every_setting_counts(clients: list[Upload]) -> None:
    usual = co_boosting(clients).networks[0]
    changes: dict[str, Any] = {
        "batch_size": 4,
        "temperature": 1.0,
        "momentum": 0.0,
        "weight_decay": 0.1,
        "generator_learning_rate": 0.1,
        "class_loss": 0.0,
        "hardness": 0.0,
        "adversarial_loss": 0.0,
        "perturbation": 0.0,
        "weight_step": 0.2,
        "weight_decline": 0.01,
    }
    for name, value in changes.items():
        assert not same(co_boosting(clients, **{name: value}).networks[0], usual), name


def test_images_are_cropped_and_mirrored_where_the_clients_were(clients: list[Upload]) -> None:
    plain, augmented = (co_boosting(clients, dataset=one) for one in (tiny.TINY_DATA, tiny.TINY_AUGMENTED))
    assert not same(plain.networks[0], augmented.networks[0])


def test_the_same_seed_gives_the_same_bits_after_other_draws(clients: list[Upload]) -> None:
    torch.manual_seed(0)
    first = co_boosting(clients).networks[0]
    torch.manual_seed(1)
    assert same(co_boosting(clients).networks[0], first)


def test_uploads_stay_as_they_are(clients: list[Upload]) -> None:
    before = [{name: tensor.clone() for name, tensor in upload[Weights].tensors.items()} for upload in clients]
    co_boosting(clients)
    for upload, weights in zip(clients, before, strict=True):
        assert same(dict(upload[Weights].tensors), weights)
        assert not any(tensor.requires_grad or tensor.grad is not None for tensor in upload[Weights].tensors.values())


def test_a_student_that_diverges_ends_the_method(clients: list[Upload]) -> None:
    with pytest.raises(ArithmeticError, match="the student diverged in epoch 1; allowed: a lower learning_rate"):
        co_boosting(clients, learning_rate=1e30, weight_decay=1e9)


def test_images_that_are_too_small_are_refused() -> None:
    with pytest.raises(InputError, match="method 'co_boosting' can't serve model 'tiny': images of 3x3 pixels"):
        bind_written("co_boosting", {}, [ModelSpec("tiny", Images(1, 3, 3), classes=3)])
