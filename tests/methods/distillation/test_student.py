import math

import pytest
import torch
from torch import Tensor, nn

from fedfisher_core.methods.distillation.student import Pool, Teacher, distillation_loss, train_on_pool
from tests import tiny

TEACHER = Teacher([tiny.TINY.load(tiny.initial(seed=seed)) for seed in (1, 2)], [0.25, 0.75])


def inputs(count: int, *, seed: int = 0) -> Tensor:
    return tiny.examples(count, seed=seed).inputs


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@torch.no_grad()
def test_a_teacher_is_the_weighted_sum_of_logits() -> None:
    first, second = (network(inputs(7)) for network in TEACHER.networks)
    assert torch.allclose(TEACHER(inputs(7)), 0.25 * first + 0.75 * second, atol=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 20.0])
def test_the_distillation_loss_is_the_softened_divergence_times_the_squared_temperature(temperature: float) -> None:
    student, teacher = (10 * torch.randn(6, 4, generator=generator(seed)) for seed in (1, 2))
    expected = 0.0
    for own, other in zip(student.tolist(), teacher.tolist(), strict=True):
        exponents = [[math.exp(one / temperature) for one in row] for row in (own, other)]
        soft, target = ([one / sum(row) for one in row] for row in exponents)
        expected += temperature**2 * sum(t * math.log(t / s) for s, t in zip(soft, target, strict=True)) / 6
    assert distillation_loss(student, teacher, temperature).item() == pytest.approx(expected, rel=1e-4)


class Counting(nn.Module):
    """Counts the images that a network sees."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.seen = 0

    def forward(self, images: Tensor) -> Tensor:
        self.seen += len(images)
        return self.network(images)


def test_a_pass_shows_every_image_once_with_its_logits() -> None:
    teacher = Counting(TEACHER)
    pool = Pool(teacher)
    for seed in range(3):
        pool.add(inputs(5, seed=seed))
    assert len(pool) == 15
    everything = torch.cat([inputs(5, seed=seed) for seed in range(3)])
    orders = []
    for seed in (0, 1):
        batches = list(pool.batches(4, generator(seed)))
        assert [len(shown) for shown, _ in batches] == [4, 4, 4, 3]
        shown = torch.cat([one for one, _ in batches])
        order = [int((everything == image).flatten(1).all(1).nonzero()) for image in shown]
        assert sorted(order) == list(range(15))
        with torch.no_grad():
            assert torch.allclose(torch.cat([one for _, one in batches]), TEACHER(shown), atol=1e-6)
        orders.append(order)
    assert orders[0] != orders[1]
    assert teacher.seen == 15


def test_a_view_of_an_image_gets_logits_of_its_own() -> None:
    pool = Pool(TEACHER, lambda images: images.flip(3))
    pool.add(inputs(5))
    ((shown, taught),) = pool.batches(5, generator())
    mirrored = {tuple(image.flatten().tolist()) for image in inputs(5).flip(3)}
    assert {tuple(image.flatten().tolist()) for image in shown} == mirrored
    with torch.no_grad():
        assert torch.allclose(taught, TEACHER(shown), atol=1e-6)


def test_a_student_comes_nearer_to_its_teacher() -> None:
    pool = Pool(TEACHER)
    pool.add(inputs(60))
    student = tiny.TINY.load(tiny.initial(seed=3))
    optimiser = torch.optim.SGD(student.parameters(), lr=0.3, momentum=0.9)

    def distance() -> float:
        with torch.no_grad():
            return distillation_loss(student(inputs(60)), TEACHER(inputs(60)), 20.0).item()

    before = distance()
    settings = {"temperature": 20.0, "batch_size": 60}
    assert train_on_pool(student, optimiser, pool, generator=generator(), **settings) == pytest.approx(before, rel=1e-4)
    for epoch in range(20):
        train_on_pool(student, optimiser, pool, generator=generator(epoch), **settings)
    assert distance() < before / 3
    assert not student.training
