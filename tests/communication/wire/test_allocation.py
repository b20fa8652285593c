import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedfisher_core.communication.wire.spectral import allocate

GROUPS = (3, 2)
OPTIONS = 4


def table(seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Quantities in any order of importance, whose error falls as bits are spent on them."""
    generator = np.random.default_rng(seed)
    quantities = sum(GROUPS)
    fractions = np.sort(generator.random((quantities, OPTIONS)), axis=1)[:, ::-1]
    steps = generator.integers(1, 9, size=(quantities, OPTIONS))
    steps[:, 0] = 0
    return generator.exponential(size=(quantities, 1)) * fractions, np.cumsum(steps, axis=1)


def is_leading(options: NDArray[np.int64]) -> bool:
    """Whether each group's sent quantities are its first ones."""
    parts = np.split(options > 0, np.cumsum(GROUPS)[:-1])
    return all(np.array_equal(part, np.sort(part)[::-1]) for part in parts)


def choices() -> Iterator[NDArray[np.int64]]:
    for options in itertools.product(range(OPTIONS), repeat=sum(GROUPS)):
        if is_leading(np.array(options)):
            yield np.array(options)


CHOICES = np.stack(list(choices()))
ROWS = np.arange(sum(GROUPS))


@given(st.integers(0, 10**6), st.floats(1e-3, 1.0))
@settings(max_examples=80, deadline=None)
def test_a_choice_that_is_best_at_a_price_is_found_at_its_cost(seed: int, price: float) -> None:
    distortion, cost = table(seed)
    errors, bits = distortion[ROWS, CHOICES].sum(axis=1), cost[ROWS, CHOICES].sum(axis=1)
    best = int(np.argmin(errors + price * bits))
    chosen = allocate(distortion, cost, int(bits[best]), groups=GROUPS)
    assert distortion[ROWS, chosen].sum() <= errors[best] + 1e-9


@given(st.integers(0, 10**6), st.integers(0, 120))
@settings(max_examples=80, deadline=None)
def test_budget_is_kept_groups_are_sent_from_their_start_and_no_improvement_is_left(seed: int, budget: int) -> None:
    distortion, cost = table(seed)
    chosen = allocate(distortion, cost, budget, groups=GROUPS)
    assert is_leading(chosen)
    assert cost[ROWS, chosen].sum() <= budget
    error = distortion[ROWS, chosen].sum()
    for options in CHOICES:
        if (options != chosen).sum() == 1 and distortion[ROWS, options].sum() < error:
            more = cost[ROWS, options].sum() > cost[ROWS, chosen].sum()
            assert not more or cost[ROWS, options].sum() > budget


@pytest.mark.parametrize("budget", [10_000, 5 * 24])
def test_every_quantity_gets_its_best_option_when_bits_abound(budget: int) -> None:
    distortion, cost = table(0)
    assert allocate(distortion, cost, budget, groups=GROUPS).tolist() == [OPTIONS - 1] * 5


def test_an_unimportant_quantity_is_bought_for_the_sake_of_those_behind_it() -> None:
    distortion = np.array([[0.1, 0.0], [5.0, 0.0], [1.0, 0.0]])
    cost = np.array([[0, 10], [0, 10], [0, 10]])
    assert allocate(distortion, cost, 20, groups=[2, 1]).tolist() == [1, 1, 0]


def test_nothing_to_divide_is_no_error() -> None:
    assert allocate(np.zeros((0, 3)), np.zeros((0, 3), dtype=np.int64), 5, groups=[0, 0]).tolist() == []
