import math
from dataclasses import fields

import pytest
import torch
from torch import Tensor

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.input_moments import InputMoments
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.data.tensors import Examples
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.privacy.accountant import Noise
from fedfisher_core.privacy.fishers import PrivateLocal, clipped_input_sums, private_input_moments
from fedfisher_core.settings import PrivacySettings
from tests import tiny
from tests.privacy.networks import generator

SIZE = tiny.SIZE**2
INPUTS = tiny.examples(40, seed=1).inputs
# Some examples are longer than R, and some are not.
CLIPPED = PrivacySettings(epsilon=1, input_moments_clip=1.5)
RADIUS = (1.5 * SIZE) ** 0.5
UNCLIPPED = PrivacySettings(epsilon=1, input_moments_clip=1e12)


def client(inputs: Tensor = INPUTS) -> Local:
    return tiny.local(tiny.TINY.load(tiny.initial()), Examples(inputs, torch.zeros(len(inputs), dtype=torch.int64)))


def private(
    inputs: Tensor = INPUTS, *, settings: PrivacySettings = CLIPPED, multiplier: float = 0.0, seed: int = 0
) -> PrivateLocal:
    plain = client(inputs)
    shared = {one.name: getattr(plain, one.name) for one in fields(Local)}
    shared |= {"generator": generator(seed), "approximations": frozenset({Approximation.KFAC})}
    return PrivateLocal(**shared, privacy=settings, noise=Noise(training=1.0, release=multiplier, epsilon=1.0))


def released(inputs: Tensor = INPUTS, *, directions: int = SIZE, **how: object) -> dict[str, Tensor]:
    return private(inputs, **how).compute(InputMoments, {"directions": directions}).tensors


def noisy(inputs: Tensor, multiplier: float, settings: PrivacySettings = CLIPPED) -> tuple[Tensor, Tensor]:
    """Release a mean, and second moments, which the covariance tells with the mean."""
    mean, covariance = private_input_moments(inputs, settings, noise_multiplier=multiplier, generator=generator())
    return mean, covariance + torch.outer(mean, mean)


def shortened(inputs: Tensor) -> Tensor:
    """Clip one example after another."""
    return torch.stack([one * min(1.0, RADIUS / one.double().norm().item()) for one in inputs])


def joined(first: Tensor, second: Tensor) -> Tensor:
    """All numbers of both sums once, each in units of its clip; an entry off the diagonal stands for two."""
    rows, columns = torch.triu_indices(SIZE, SIZE, 1)
    above = 2**0.5 * second[rows, columns]
    return torch.cat([first / RADIUS, second.diagonal() / RADIUS**2, above / RADIUS**2])


def change(example: Tensor) -> float:
    """How far the joined sums of two neighbours are from each other."""
    others = INPUTS.flatten(1)[:9]
    with_it, nothing = torch.cat([others, example[None]]), torch.cat([others, torch.zeros(1, SIZE)])
    sums = [joined(*clipped_input_sums(one, RADIUS)) for one in (with_it, nothing)]
    return (sums[0] - sums[1]).norm().item()


@pytest.mark.parametrize("length", [1e-3, 0.5, 1.0, 1.001, 40.0, 1e12, 1e35])
def test_an_example_changes_both_sums_by_at_most_root_two_of_their_clips(length: float) -> None:
    for seed in range(5):
        direction = torch.randn(SIZE, generator=generator(seed), dtype=torch.float64)
        found = change((length * RADIUS * direction / direction.norm()).float())
        assert found <= 2**0.5 * (1 + 1e-9)
        # What is longer than the clip reaches the bound; what is shorter changes less.
        expected = 2**0.5 if length >= 1 else (length**2 + length**4) ** 0.5
        assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("entry", [float("inf"), float("-inf"), float("nan")])
def test_an_example_that_is_not_finite_adds_nothing(entry: float) -> None:
    example = INPUTS[0].flatten().clone()
    example[3] = entry
    assert change(example) == 0


def test_neighbours_are_apart_by_as_much_as_the_mechanism_says() -> None:
    multiplier, worst = 0.7, 1e3 * INPUTS[:1]
    others, draws = INPUTS[:9], 400
    source, spread = generator(), []
    for _ in range(draws):
        pair = private_input_moments(torch.zeros(10, SIZE), CLIPPED, noise_multiplier=multiplier, generator=source)
        spread.append(joined(pair[0], pair[1] + torch.outer(pair[0], pair[0])))
    # In units of the noise as it is measured, the Gaussian mechanism takes a change of 1 / multiplier.
    deviations = torch.stack(spread).std(0)
    with_it, nothing = (
        joined(*noisy(torch.cat([others, one]), multiplier)) for one in (worst, torch.zeros_like(worst))
    )
    assert deviations.std() < 0.05 * deviations.mean()
    assert ((with_it - nothing) / deviations.mean()).norm().item() == pytest.approx(1 / multiplier, rel=0.02)


@pytest.mark.parametrize(("multiplier", "clip"), [(1.0, 0.5), (4.0, 0.5), (1.0, 3.0)])
def test_the_noise_is_of_the_multiplier_and_the_clip(multiplier: float, clip: float) -> None:
    size, examples = 400, 4
    settings = CLIPPED.model_copy(update={"input_moments_clip": clip})
    mean, moments = noisy(torch.zeros(examples, size), multiplier, settings)
    square = clip * size
    assert mean.std().item() == pytest.approx(multiplier * 2**0.5 * square**0.5 / examples, rel=0.1)
    assert moments.diagonal().std().item() == pytest.approx(multiplier * 2**0.5 * square / examples, rel=0.1)
    above = moments[tuple(torch.triu_indices(size, size, 1))]
    assert above.std().item() == pytest.approx(multiplier * square / examples, rel=0.01)
    assert abs(above.mean().item()) < 0.02 * above.std().item()
    assert torch.equal(moments, moments.T)


def test_without_noise_it_is_the_moments_of_clipped_inputs() -> None:
    lengths = INPUTS.flatten(1).norm(dim=1)
    assert lengths.min() < RADIUS < lengths.max()
    expected = InputMoments.compute(client(shortened(INPUTS)), directions=4).tensors
    found = released(directions=4)
    torch.testing.assert_close(found["mean"], expected["mean"], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found["deviations"], expected["deviations"], rtol=1e-4, atol=1e-5)
    # The sign of an eigenvector is arbitrary.
    gram, other = (one["directions"].T @ one["directions"] for one in (found, expected))
    torch.testing.assert_close(gram, other, rtol=1e-4, atol=1e-5)
    plain = InputMoments.compute(client(), directions=4).tensors
    assert (plain["mean"] - found["mean"]).norm() > 0.01 * plain["mean"].norm()


def test_without_noise_and_clip_it_is_what_is_sent_without_privacy() -> None:
    expected, found = InputMoments.compute(client(), directions=4).tensors, released(directions=4, settings=UNCLIPPED)
    for name in ("mean", "deviations"):
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-5)


def test_batches_change_nothing_but_rounding() -> None:
    many = torch.randn(2300, 5, generator=generator())
    total, products = clipped_input_sums(many, 1.0)
    exact = many.double() * (1 / many.double().norm(dim=1, keepdim=True)).clamp(max=1)
    torch.testing.assert_close(total, exact.sum(0))
    torch.testing.assert_close(products, exact.T @ exact)


def test_what_noise_drowns_is_finite_with_directions_in_order_and_no_negative_variance() -> None:
    found = released(multiplier=1e4, directions=7)
    lengths = found["directions"].norm(dim=1)
    assert all(torch.isfinite(tensor).all() for tensor in found.values())
    assert (lengths[:-1] >= lengths[1:]).all()
    assert (found["deviations"] >= 0).all()
    assert [tensor.dtype for tensor in found.values()] == [torch.float32] * 3
    # Of pure noise about half of all eigenvalues are negative, and their directions are 0.
    rows = released(multiplier=1e4)["directions"].norm(dim=1)
    assert 0.25 * SIZE < (rows == 0).sum() < 0.75 * SIZE
    assert rows[0] > 0


def test_the_largest_noise_is_as_long_as_random_matrices_say() -> None:
    size, examples, multiplier = 300, 10, 2.0
    _, moments = noisy(torch.zeros(examples, size), multiplier)
    edge = multiplier * (2 * size) ** 0.5 * CLIPPED.input_moments_clip * size * math.sqrt(2) / examples
    assert torch.linalg.eigvalsh(moments)[-1].item() == pytest.approx(edge, rel=0.1)


def test_a_client_releases_the_same_whatever_else_it_releases_and_another_client_something_else() -> None:
    together, alone = private(multiplier=1.0), private(multiplier=1.0)
    together.compute(KFAC, {})
    first, again = (one.compute(InputMoments, {"directions": SIZE}).tensors for one in (together, alone))
    other = released(multiplier=1.0, seed=1)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in ("mean", "directions"))
    assert not torch.equal(alone.input_moments("one")[0], alone.input_moments("other")[0])
