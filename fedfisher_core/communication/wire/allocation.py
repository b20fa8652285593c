"""Dividing bits: how finely each of many quantities is sent so that the sum of their errors is least."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_BISECTIONS = 60

Table = NDArray[np.float64]
Bits = NDArray[np.int64]


def allocate(distortion: Table, cost: Bits, budget: int, *, groups: Sequence[int]) -> Bits:
    """Choose one option for each quantity within a common budget; in each group only the first ones are sent.

    The choice that minimises distortion + price * cost, at the lowest price that fits the budget, is the best
    of all choices of its cost (Lagrangian relaxation; Shoham and Gersho 1988). What is left is spent on the
    steps that lower the distortion most per bit.

    Args:
        distortion: squared error of each option, shape (quantities, options); option 0 is not to send it.
        cost: bits of each option, same shape, increasing along the options from 0.
        budget: bits, not negative.
        groups: sizes of groups of consecutive quantities; one may be sent only if all before it in its group are.

    Returns:
        The option of each quantity, shape (quantities,).
    """
    members = _members(groups)
    low, high = 0.0, 2 * float(distortion.max(initial=0)) + np.finfo(np.float64).tiny
    options = _cheapest(distortion, cost, low, members)
    if _total(cost, options) <= budget:
        return options
    # A bit at the high price costs more than any distortion. Divisions find the price's scale, bisection its digits.
    low = high
    while _total(cost, _cheapest(distortion, cost, low, members)) <= budget:
        high, low = low, low / 16
    for _ in range(_BISECTIONS):
        price = (low + high) / 2
        if _total(cost, _cheapest(distortion, cost, price, members)) <= budget:
            high = price
        else:
            low = price
    options = _cheapest(distortion, cost, high, members)
    return _spend(distortion, cost, options, budget - _total(cost, options), groups)


def _total(cost: Bits, options: Bits) -> int:
    return int(cost[np.arange(len(options)), options].sum())


def _members(groups: Sequence[int]) -> list[Bits]:
    """The positions of the quantities of all groups of one size, shape (groups, size), for every size."""
    sizes = np.array(groups, dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    return [starts[sizes == size][:, None] + np.arange(size) for size in np.unique(sizes[sizes > 0])]


def _cheapest(distortion: Table, cost: Bits, price: float, members: Sequence[Bits]) -> Bits:
    """The choice of least distortion + price * cost."""
    value = distortion + price * cost
    options = 1 + np.argmin(value[:, 1:], axis=1)
    gain = value[:, 0] - value[np.arange(len(value)), options]
    for rows in members:
        gains = np.cumsum(gain[rows], axis=1)
        # Sending none gains 0.
        sent = np.where(gains.max(axis=1) > 0, gains.argmax(axis=1) + 1, 0)
        options[rows[np.arange(rows.shape[1]) >= sent[:, None]]] = 0
    return options


def _spend(distortion: Table, cost: Bits, options: Bits, left: int, groups: Sequence[int]) -> Bits:
    """Buy single improvements, the best per bit first, until none fits."""
    rows = np.arange(len(options))
    first = np.zeros(len(options), dtype=np.bool_)
    first[np.cumsum([0, *groups[:-1]])[np.array(groups) > 0]] = True
    options = options.copy()
    while True:
        reachable = (options > 0) | first | (np.roll(options, 1) > 0)
        gain = distortion[rows, options][:, None] - distortion
        extra = cost - cost[rows, options][:, None]
        allowed = reachable[:, None] & (gain > 0) & (extra > 0) & (extra <= left)
        if not allowed.any():
            return options
        rate = np.where(allowed, gain / np.maximum(extra, 1), 0.0)
        row, option = np.unravel_index(int(rate.argmax()), rate.shape)
        left -= int(extra[row, option])
        options[row] = option
