import functools
import math
import re
from collections.abc import Callable

import pytest
import torch
from opacus.accountants import RDPAccountant
from opacus.accountants.utils import get_noise_multiplier
from torch import Tensor

from fedfisher_core.engine.errors import InputError
from fedfisher_core.privacy.accountant import Guesses, Noise, calibrate, guess, lower_bound, p_value, quieten, spent
from fedfisher_core.settings import PrivacySettings
from tests.privacy.networks import generator

DELTA = 1e-5
EXAMPLES = 2000
STEPS = 100
RATE = 0.025


@functools.cache
def calibrated(
    epsilon: float, *, batch_size: int = 50, releases: int = 1, share: float = 0.3, steps: int = STEPS
) -> Noise:
    settings = PrivacySettings(epsilon=epsilon, delta=DELTA, statistics_share=share)
    return calibrate(settings, num_examples=EXAMPLES, batch_size=batch_size, steps=steps, releases=releases)


def opacus_epsilon(noise: Noise, *, rate: float, releases: int) -> float:
    """Compose one mechanism at a time."""
    accountant = RDPAccountant()
    for _ in range(STEPS):
        accountant.step(noise_multiplier=noise.training, sample_rate=rate)
    for _ in range(releases):
        assert noise.release is not None
        accountant.step(noise_multiplier=noise.release, sample_rate=1.0)
    return accountant.get_epsilon(delta=DELTA)


@pytest.mark.parametrize(("epsilon", "releases"), [(1.0, 1), (3.0, 0), (3.0, 2), (3.0, 3)])
def test_epsilon_is_that_of_opacus_accountant_and_within_the_budget(epsilon: float, releases: int) -> None:
    noise = calibrated(epsilon, releases=releases)
    assert noise.epsilon == pytest.approx(opacus_epsilon(noise, rate=RATE, releases=releases), rel=1e-9)
    assert 0.99 * epsilon < noise.epsilon <= epsilon


@pytest.mark.parametrize("multiplier", [0.3, 1.1, 4.0, 200.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-3, 0.2])
def test_orders_that_are_left_out_would_not_have_given_a_smaller_epsilon(multiplier: float, delta: float) -> None:
    quieten()
    for mechanisms in ([(multiplier, 1.0, 1)], [(multiplier, 0.05, 30)], [(multiplier, 0.4, 5), (2.0, 1.0, 2)]):
        whole = RDPAccountant()
        whole.history = list(mechanisms)
        assert spent(mechanisms, delta=delta) == max(0.0, whole.get_epsilon(delta=delta))


@pytest.mark.parametrize("releases", [0, 2])
def test_the_noise_of_training_is_the_least(releases: int) -> None:
    noise = calibrated(3.0, releases=releases)
    less = Noise(training=0.998 * noise.training, release=noise.release, epsilon=0.0)
    assert opacus_epsilon(less, rate=RATE, releases=releases) > 3.0


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_without_fishers_it_is_the_multiplier_that_opacus_finds(epsilon: float) -> None:
    noise = calibrated(epsilon, releases=0)
    quieten()
    expected = get_noise_multiplier(
        target_epsilon=epsilon, target_delta=DELTA, sample_rate=RATE, steps=STEPS, epsilon_tolerance=1e-3 * epsilon
    )
    assert noise.training == pytest.approx(expected, rel=3e-3)
    assert noise.release is None


@pytest.mark.parametrize(("epsilon", "share"), [(1.0, 0.3), (3.0, 0.6)])
def test_one_fisher_alone_costs_its_share(epsilon: float, share: float) -> None:
    noise = calibrated(epsilon, share=share)
    assert noise.release is not None
    assert spent([(noise.release, 1.0, 1)], delta=DELTA) == pytest.approx(share * epsilon, rel=3e-3)
    assert spent([(noise.release, 1.0, 1)], delta=DELTA) <= share * epsilon


def test_every_fisher_makes_training_noisier() -> None:
    none, one, two, three = (calibrated(3.0, releases=releases).training for releases in range(4))
    assert none < one < two < three


def test_a_batch_of_all_examples_and_a_larger_one_are_the_same() -> None:
    exact, larger = (calibrated(3.0, batch_size=size) for size in (EXAMPLES, 5 * EXAMPLES))
    assert exact == larger
    assert exact.epsilon == pytest.approx(opacus_epsilon(exact, rate=1.0, releases=1), rel=1e-9)


def test_a_budget_below_what_a_fisher_can_cost_is_refused() -> None:
    with pytest.raises(InputError, match=r"privacy\.epsilon=0\.2 .*allowed: at least 0\.3\d+, as no noise"):
        calibrated(0.2)


def test_a_budget_below_what_the_conversion_costs_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"privacy\.epsilon=0\.05 .*; allowed: at least 0\.1029, as no noise"
    ) as refused:
        calibrated(0.05, releases=0)
    assert "share" not in str(refused.value)


def refusal(epsilon: float, releases: int, share: float) -> str:
    try:
        calibrated(epsilon, releases=releases, share=share)
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("releases", [0, 1])
def test_what_a_refusal_allows_is_not_refused_for_the_same_reason(share: float, releases: int) -> None:
    said = re.search(r"allowed: at least ([\d.]+)", refusal(0.01, releases, share))
    assert said
    assert "at least" not in refusal(float(said[1]), releases, share)


def test_fishers_that_leave_nothing_to_the_training_are_refused() -> None:
    with pytest.raises(
        InputError, match=r"privacy\.epsilon=3 .*statistics_share=0\.9.* 2 noisy statistics: .* is spent"
    ):
        calibrated(3.0, releases=2, share=0.9)


def test_the_smallest_allowed_budget_is_met() -> None:
    with pytest.raises(InputError) as refusal:
        calibrated(0.2)
    allowed = float(str(refusal.value).split("allowed: at least ")[1].split(",")[0])
    assert calibrated(1.01 * allowed).epsilon <= 1.01 * allowed


@pytest.mark.parametrize(
    ("name", "changes"), [("batch_size", {"batch_size": 0}), ("steps", {"steps": 0}), ("releases", {"releases": -1})]
)
def test_numbers_out_of_range_are_named(name: str, changes: dict[str, int]) -> None:
    with pytest.raises(InputError, match=rf"{name}={changes[name]}; allowed"):
        calibrated(3.0, **changes)  # type: ignore[arg-type]


CANARIES = 1000
MADE = 400
TRIALS = 200


def p_value_by_hand(guesses: Guesses, epsilon: float, delta: float) -> float:
    """Follow Theorem 5.2 word by word."""
    right = math.exp(epsilon) / (math.exp(epsilon) + 1)

    def tail(least: int) -> float:
        return sum(
            math.comb(guesses.made, k) * right**k * (1 - right) ** (guesses.made - k)
            for k in range(max(least, 0), guesses.made + 1)
        )

    v, m = guesses.correct, guesses.canaries
    worst = max((tail(v - i) - tail(v)) / i for i in range(1, m + 1))
    return min(tail(v) + 2 * m * delta * worst, 1.0)


@pytest.mark.parametrize("guesses", [Guesses(9, 7, 6), Guesses(12, 12, 12), Guesses(5, 4, 0), Guesses(30, 20, 15)])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.01])
def test_the_p_value_is_that_of_the_theorem(guesses: Guesses, epsilon: float, delta: float) -> None:
    expected = p_value_by_hand(guesses, epsilon, delta)
    assert p_value(guesses, epsilon=epsilon, delta=delta) == pytest.approx(expected, rel=1e-9)


def test_the_bound_is_the_largest_epsilon_that_is_refuted() -> None:
    guesses = Guesses(100, 50, 45)
    found = bound(guesses)
    assert found > 1
    assert p_value(guesses, epsilon=0.99 * found, delta=DELTA) < 0.05
    assert p_value(guesses, epsilon=1.01 * found, delta=DELTA) > 0.05


@pytest.mark.parametrize("guesses", [Guesses(100, 50, 25), Guesses(100, 0, 0), Guesses(100, 50, 0)])
def test_guesses_that_show_nothing_refute_nothing(guesses: Guesses) -> None:
    assert lower_bound(guesses, delta=DELTA) == 0


def test_the_highest_scores_are_guessed_to_be_in_and_the_lowest_out() -> None:
    scores = torch.tensor([0.1, 5.0, -3.0, 2.0, 0.0, -1.0])
    included = torch.tensor([True, True, False, False, True, True])
    assert guess(scores, included, made=4) == Guesses(canaries=6, made=4, correct=2)
    assert guess(scores, included, made=1) == Guesses(canaries=6, made=1, correct=1)
    assert guess(scores, included, made=0) == Guesses(canaries=6, made=0, correct=0)


@functools.cache
def bound(guesses: Guesses) -> float:
    return lower_bound(guesses, delta=DELTA)


def bounds(release: Callable[[Tensor, torch.Generator], Tensor]) -> Tensor:
    """Audit a mechanism that gets a one for every canary that is there, over and over."""
    source = generator(7)
    found = []
    for _ in range(TRIALS):
        included = torch.rand(CANARIES, generator=source) < 0.5
        found.append(bound(guess(release(included.double(), source), included, made=MADE)))
    return torch.tensor(found)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_of_randomised_response_the_bound_is_valid_and_close(epsilon: float) -> None:
    def release(bits: Tensor, source: torch.Generator) -> Tensor:
        lies = torch.rand(len(bits), generator=source) > 1 / (1 + math.exp(-epsilon))
        return (bits.bool() ^ lies) + 0.1 * torch.rand(len(bits), generator=source)

    found = bounds(release)
    assert (found <= epsilon).double().mean() >= 0.95
    assert found.median() > 0.5 * epsilon


def gaussian(multiplier: float) -> Callable[[Tensor, torch.Generator], Tensor]:
    return lambda bits, source: bits + multiplier * torch.randn(len(bits), generator=source, dtype=bits.dtype)


def test_of_the_gaussian_mechanism_the_bound_is_valid_and_a_tenth_of_its_noise_is_noticed() -> None:
    claimed = spent([(4.0, 1.0, 1)], delta=DELTA)
    assert (bounds(gaussian(4.0)) <= claimed).double().mean() >= 0.95
    assert (bounds(gaussian(0.4)) > claimed).double().mean() > 0.95
