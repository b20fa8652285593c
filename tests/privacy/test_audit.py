"""The audit's bound against brute force, and on mechanisms whose epsilon is known."""

import functools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fedfisher_core.privacy.accountant import Guesses, guess, lower_bound, p_value, spent
from tests.privacy.networks import generator

DELTA = 1e-5
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
