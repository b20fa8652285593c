import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from fedfisher_core.data.layouts import Images
from fedfisher_core.methods.distillation.generator import draw_generator
from fedfisher_core.methods.distillation.student import Teacher
from fedfisher_core.methods.distillation.synthesis import (
    Objective,
    Synthesised,
    adversarial_loss,
    batch_norm_distances,
    synthesise,
)
from tests.methods.distillation.networks import CLASSES, normed

IMAGES, SIZE, LATENT = 12, 8, 5


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def softmax(logits: list[float]) -> list[float]:
    total = sum(map(math.exp, logits))
    return [math.exp(one) / total for one in logits]


def test_disagreement_is_the_divergence_where_other_classes_are_predicted() -> None:
    student, teacher = 2 * drawn(20, 4, seed=1), 2 * drawn(20, 4, seed=2)
    expected, differing = 0.0, 0
    for own, other in zip(student.tolist(), teacher.tolist(), strict=True):
        if own.index(max(own)) != other.index(max(other)):
            differing += 1
            expected -= sum(t * math.log(t / s) for s, t in zip(softmax(own), softmax(other), strict=True))
    assert 0 < differing < 20
    assert adversarial_loss(student, teacher).item() == pytest.approx(expected / 20, rel=1e-5)
    assert adversarial_loss(1.5 * teacher, teacher).item() == 0


def test_disagreement_with_a_teacher_that_is_certain_has_a_gradient() -> None:
    student, teacher = torch.tensor([[0.0, 300.0]]), torch.tensor([[200.0, -100.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(adversarial_loss(student, teacher), teacher)
    assert torch.isfinite(gradient).all()


def batch_norm_by_hand(network: nn.Module, inputs: Tensor) -> float:
    """Compare the statistics channel by channel, and pass on what the layer makes of them."""
    total = 0.0
    maps = inputs
    for conv, norm in ((network.first, network.first_norm), (network.second, network.second_norm)):
        maps = conv(maps)
        variances, means = [], []
        for channel in range(maps.shape[1]):
            values = maps[:, channel].flatten().double().numpy()
            means.append((values.mean() - norm.mean[channel].item()) ** 2)
            variances.append((values.var() - norm.variance[channel].item()) ** 2)
        total += math.sqrt(sum(means)) + math.sqrt(sum(variances))
        maps = norm(maps).relu()
    return total


@torch.no_grad()
def test_statistics_of_every_batch_normalisation_are_compared() -> None:
    networks = [normed(0), normed(1)]
    inputs = drawn(IMAGES, 1, SIZE, SIZE)
    with batch_norm_distances(Teacher(networks, [0.3, 0.7])) as distances:
        for network in networks:
            network(inputs)
    assert len(distances) == 4
    expected = sum(batch_norm_by_hand(network, inputs) for network in networks)
    assert sum(distances).item() == pytest.approx(expected, rel=1e-5)


def hooks(network: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in network.modules())


def test_hooks_are_gone_afterwards() -> None:
    network = normed(0)
    with batch_norm_distances(network):
        assert hooks(network) == 2
    assert hooks(network) == 0
    with pytest.raises(ZeroDivisionError), batch_norm_distances(network):
        raise ZeroDivisionError
    assert hooks(network) == 0


def test_a_network_without_batch_normalisation_has_no_statistics() -> None:
    network = nn.Conv2d(1, 2, kernel_size=3)
    with batch_norm_distances(network) as distances:
        assert hooks(network) == 0
        network(drawn(2, 1, SIZE, SIZE))
    assert distances == []


@dataclass
class Round:
    """One batch of images and what they were made with."""

    teacher: nn.Module
    student: nn.Module
    labels: Tensor
    made: Synthesised


def view(pixels: Tensor) -> Tensor:
    return (pixels - 0.4) / 0.3


def made(objective: Objective, *, steps: int = 25) -> Round:
    teacher, student = Teacher([normed(0), normed(1)], [0.3, 0.7]), normed(2)
    generator = torch.Generator().manual_seed(0)
    network = draw_generator(
        images=Images(1, SIZE, SIZE), latent=LATENT, generator=generator, device=torch.device("cpu")
    )
    labels = (torch.arange(IMAGES) * CLASSES) // IMAGES
    synthesised = synthesise(
        network,
        teacher,
        student,
        drawn(IMAGES, LATENT),
        labels,
        view=view,
        objective=objective,
        steps=steps,
        learning_rate=0.001,
    )
    return Round(teacher, student, labels, synthesised)


@torch.no_grad()
def losses(one: Round, pixels: Tensor) -> tuple[float, float, float]:
    """Compute the three losses of images by hand."""
    inputs = view(pixels)
    taught, learnt = one.teacher(inputs), one.student(inputs)
    logs = [math.log(softmax(row)[label]) for row, label in zip(taught.tolist(), one.labels.tolist(), strict=True)]
    statistics = sum(batch_norm_by_hand(network, inputs) for network in one.teacher.networks)
    return -sum(logs) / IMAGES, statistics, adversarial_loss(learnt, taught).item()


OBJECTIVES = [Objective(1.0, 0.0, 0.0), Objective(0.0, 1.0, 0.0), Objective(0.0, 0.0, 1.0), Objective(0.7, 0.2, 0.4)]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=["classes", "batch norm", "adversarial", "all"])
def test_images_are_kept_at_the_smallest_loss(objective: Objective) -> None:
    first, last = made(objective, steps=1), made(objective)
    factors = (objective.classes, objective.batch_norm, objective.adversarial)
    for one in (first, last):
        expected = sum(a * b for a, b in zip(factors, losses(one, one.made.pixels), strict=True))
        assert one.made.loss == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert last.made.loss < first.made.loss
    shorter = [made(objective, steps=steps).made.loss for steps in (1, 2, 3, 12)]
    assert [*shorter, last.made.loss] == sorted([*shorter, last.made.loss], reverse=True)


def test_a_loss_that_is_not_finite_is_said() -> None:
    with pytest.raises(
        ArithmeticError, match=r"of the generator is not finite; allowed: a learning rate of it below 0\.001"
    ):
        made(Objective(math.inf, 0.0, 0.0), steps=2)


def test_nothing_is_written_to_the_networks() -> None:
    one = made(OBJECTIVES[3])
    fresh = [normed(0), normed(1), normed(2)]
    for network, original in zip([*one.teacher.networks, one.student], fresh, strict=True):
        for name, tensor in original.state_dict().items():
            assert torch.equal(network.state_dict()[name], tensor), name
        assert all(tensor.grad is None for tensor in network.parameters())
        asked = [[tensor.requires_grad for tensor in one.parameters()] for one in (network, original)]
        assert asked[0] == asked[1]
        assert hooks(network) == 0
    assert not one.made.pixels.requires_grad
