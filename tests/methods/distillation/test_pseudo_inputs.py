import copy

import pytest
import torch
from torch import Tensor, nn

from fedfisher_core.client.statistics.class_moments import ClassMoments
from fedfisher_core.client.statistics.input_moments import InputMoments
from fedfisher_core.client.statistics.principal import LowFrequencies
from fedfisher_core.data.tensors import Examples
from fedfisher_core.methods.distillation.pseudo_inputs import (
    Draw,
    Local,
    distil,
    gaussian,
    mixture,
    reduced,
)
from fedfisher_core.methods.kfac_distillation import of_second_moment
from fedfisher_core.models.batch_norm import BatchNorm
from fedfisher_core.models.layers import Dropout
from tests import tiny

MEAN = torch.tensor([1.0, -2.0, 0.5, 0.0])
DIRECTIONS = torch.tensor([[2.0, 0, 0, 0], [0, 0.5, 0.5, 0]])
DEVIATIONS = torch.tensor([0.0, 0.2, 0.0, 1.5])
MOMENTS = InputMoments({"mean": MEAN, "directions": DIRECTIONS, "deviations": DEVIATIONS})


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def network(seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).eval()


def around(mean: Tensor) -> Draw:
    return gaussian(InputMoments({"mean": mean, "directions": 0.3 * torch.eye(4), "deviations": torch.zeros(4)}), [4])


def test_drawn_inputs_have_the_moments_that_were_sent() -> None:
    drawn = gaussian(MOMENTS, [1, 2, 2])(40_000, seeded())
    assert drawn.shape == (40_000, 1, 2, 2)
    flat = drawn.flatten(1)
    assert torch.allclose(flat.mean(0), MEAN, atol=0.05)
    expected = DIRECTIONS.T @ DIRECTIONS + DEVIATIONS.square().diag()
    assert torch.allclose(torch.cov(flat.T), expected, atol=0.08)


def test_without_directions_the_mean_and_variances_are_kept() -> None:
    assert reduced(MOMENTS, "directions") is MOMENTS
    drawn = gaussian(reduced(MOMENTS, "variances"), [4])(40_000, seeded())
    assert torch.allclose(drawn.mean(0), MEAN, atol=0.05)
    expected = DIRECTIONS.square().sum(0) + DEVIATIONS.square()
    assert torch.allclose(torch.cov(drawn.T), expected.diag(), atol=0.08)


def test_white_noise_has_the_power_of_the_inputs() -> None:
    inputs, noise = (gaussian(reduced(MOMENTS, one), [4])(40_000, seeded()) for one in ("directions", "power"))
    assert noise.square().sum(1).mean().item() == pytest.approx(inputs.square().sum(1).mean().item(), rel=0.02)
    assert torch.allclose(noise.mean(0), torch.zeros(4), atol=0.05)
    assert torch.allclose(torch.cov(noise.T), noise.square().mean() * torch.eye(4), atol=0.08)


def test_a_mixture_has_the_shares_and_the_moments_of_its_classes() -> None:
    means = torch.tensor([[20.0, 0, 0, 0], [0, 0, 0, 0], [-20.0, 1, 2, 3]])
    directions = torch.tensor([[1.0, 1, 0, 0], [0, 0.5, 0, 0.5], [0, 0, 0.2, 0]])
    owners, shares = torch.tensor([2.0, 0, 2]), torch.tensor([0.25, 0, 0.75])
    tensors = {"shares": shares, "means": means, "directions": directions, "owners": owners, "deviations": DEVIATIONS}
    tensors["residuals"] = torch.zeros(4)
    drawn = mixture(ClassMoments(tensors), [4])(40_000, seeded())
    assert drawn.shape == (40_000, 4)
    flat = drawn
    # The classes lie so far apart that a draw tells its own.
    first = flat[:, 0] > 0
    assert first.float().mean().item() == pytest.approx(0.25, abs=0.01)
    for label, mask in ((0, first), (2, ~first)):
        own = directions[owners == label] / shares[label].sqrt()
        assert torch.allclose(flat[mask].mean(0), means[label], atol=0.06)
        assert torch.allclose(torch.cov(flat[mask].T), own.T @ own + DEVIATIONS.square().diag(), atol=0.12)


def test_all_directions_of_all_classes_give_back_the_moments_of_the_inputs() -> None:
    many = tiny.examples(600, seed=1)
    examples = Examples(many.inputs[:, :, :2, :2] + many.labels[:, None, None, None], many.labels)
    sent = ClassMoments.compute(tiny.local(tiny.TINY.load(tiny.initial()), examples), directions=100)
    flat, drawn = examples.inputs.flatten(1), mixture(sent, [1, 2, 2])(40_000, seeded())
    assert drawn.shape == (40_000, 1, 2, 2)
    assert torch.allclose(drawn.flatten(1).mean(0), flat.mean(0), atol=0.04)
    assert torch.allclose(torch.cov(drawn.flatten(1).T), torch.cov(flat.T), atol=0.12)


def test_beyond_its_low_frequencies_a_mixture_is_noise_of_the_size_of_the_residuals() -> None:
    many, low = tiny.examples(600, seed=1), LowFrequencies((1, tiny.SIZE, tiny.SIZE), 3)
    sent = ClassMoments.compute(tiny.local(tiny.TINY.load(tiny.initial()), many), directions=50, frequencies=3)
    flat = many.inputs.flatten(1)
    drawn = mixture(sent, many.inputs.shape[1:])(20_000, seeded()).flatten(1)
    assert torch.allclose(drawn.mean(0), low.fill(low.keep(flat)).mean(0), atol=0.05)
    without = ClassMoments(sent.tensors | {"residuals": torch.zeros_like(sent.tensors["residuals"])})
    smooth = mixture(without, many.inputs.shape[1:])(20_000, seeded()).flatten(1)
    assert torch.allclose(low.fill(low.keep(smooth)), smooth, atol=1e-4)
    assert torch.allclose((drawn - smooth).square().mean(0).sqrt(), sent.tensors["residuals"], rtol=0.05)


@pytest.mark.parametrize("bias", [False, True])
def test_moments_are_read_off_the_factor_of_a_first_layer(bias: bool) -> None:
    inputs = torch.randn(50, 4, generator=seeded()) @ torch.randn(4, 4, generator=seeded(1)) + MEAN
    seen = torch.cat([inputs, torch.ones(50, 1)], dim=1) if bias else inputs
    moments = of_second_moment(seen.T @ seen / 50, 4).tensors
    mean = inputs.mean(0) if bias else torch.zeros(4)
    assert torch.allclose(moments["mean"], mean, atol=1e-6)
    second = moments["directions"].T @ moments["directions"] + torch.outer(mean, mean)
    assert torch.allclose(second, inputs.T @ inputs / 50, atol=1e-4)
    assert not moments["deviations"].any()


def test_inputs_that_privacy_has_shortened_are_as_long_as_they_were() -> None:
    inputs = torch.randn(50, 4, generator=seeded()) + MEAN
    seen = torch.cat([inputs, torch.ones(50, 1)], dim=1)
    moment = seen.T @ seen / 50
    shortened = of_second_moment(0.3 * moment, 4).tensors
    assert torch.allclose(shortened["mean"], inputs.mean(0), atol=1e-5)
    torch.testing.assert_close(shortened, of_second_moment(moment, 4).tensors, rtol=1e-3, atol=1e-4)
    # What a budget adds to the diagonal is no length.
    compressed = of_second_moment(moment + 0.3 * torch.eye(5), 4).tensors
    assert torch.allclose(compressed["mean"], inputs.mean(0), atol=1e-5)


def test_a_student_that_says_the_same_stays_as_it_is() -> None:
    teacher = network(1)
    student, before = copy.deepcopy(teacher), copy.deepcopy(teacher.state_dict())
    clients = [Local(teacher, gaussian(MOMENTS, [4]), share) for share in (0.3, 0.7)]
    left = distil(student, clients, steps=5, samples=8, learning_rate=0.1, generator=seeded())
    assert left == pytest.approx(0, abs=1e-6)
    assert all(torch.equal(tensor, before[name]) for name, tensor in student.state_dict().items())


@pytest.mark.parametrize("layer", [Dropout(0.5), BatchNorm(6)], ids=lambda layer: type(layer).__name__)
def test_a_student_that_says_the_same_stays_where_training_is_not_evaluation(layer: nn.Module) -> None:
    """Batches of one client have other means than the running ones, which teachers use."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        maps = nn.Sequential(nn.Conv2d(1, 6, kernel_size=1), layer, nn.ReLU(), nn.Flatten(), nn.Linear(24, 3))
    teacher = maps.eval()
    student, before = copy.deepcopy(teacher), copy.deepcopy(teacher.state_dict())
    distil(
        student,
        [Local(teacher, gaussian(MOMENTS, [1, 2, 2]), 1.0)],
        steps=3,
        samples=8,
        learning_rate=0.1,
        generator=seeded(),
    )
    assert all(torch.equal(tensor, before[name]) for name, tensor in student.state_dict().items())


def test_the_first_step_goes_down_the_gradient_of_the_weighted_divergence() -> None:
    teachers, student = [network(1), network(2)], network(3)
    clients = [Local(one, gaussian(MOMENTS, [4]), share) for one, share in zip(teachers, (0.25, 0.75), strict=True)]
    generator, expected = seeded(5), copy.deepcopy(student)
    loss = torch.zeros(())
    for client in clients:
        inputs = client.draw(16, generator)
        taught = client.network(inputs).softmax(1).detach()
        loss = loss + client.share * (taught * (taught.log() - expected(inputs).log_softmax(1))).sum(1).mean()
    optimiser = torch.optim.Adam(expected.parameters(), lr=0.01)
    loss.backward()
    optimiser.step()
    said = distil(student, clients, steps=1, samples=16, learning_rate=0.01, generator=seeded(5))
    assert said == pytest.approx(loss.item(), rel=1e-5)
    for one, other in zip(student.parameters(), expected.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_each_client_is_asked_about_its_own_inputs() -> None:
    """Two clients that contradict each other elsewhere are both obeyed where their inputs are."""
    left, right = -4 * torch.ones(4), 4 * torch.ones(4)
    first, second = (nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval() for _ in range(2))
    for one, label in ((first, 0), (second, 1)):
        nn.init.zeros_(one[1].weight)
        one[1].bias.data = 3 * nn.functional.one_hot(torch.tensor(label), 3).float()
    student = network(3)
    clients = [Local(first, around(left), 0.5), Local(second, around(right), 0.5)]
    distil(student, clients, steps=300, samples=32, learning_rate=0.02, generator=seeded())
    assert student(left[None]).argmax() == 0
    assert student(right[None]).argmax() == 1
    assert (student(left[None]).softmax(1) - first(left[None]).softmax(1)).abs().max() < 0.1
