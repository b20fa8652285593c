"""Some of many like cases: CHAOS_SEED draws which (see tests/chaos/scale.py); CHAOS=1 takes all.

A test of which none is drawn takes long, and looks at what other tests look at in a shorter way.
"""

import hashlib
from collections import defaultdict

import pytest

from tests.chaos.scale import SEED, scaled


def left_out(items: list[pytest.Item]) -> set[pytest.Item]:
    """Draw the cases of each test marked `drawn(count)`; those that are not among the count."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("drawn"):
            cases[item.nodeid.partition("[")[0]].append(item)
    return {
        item
        for like in cases.values()
        for item in sorted(like, key=_draw)[scaled(test=_count(like[0]), chaos=len(like)) :]
    }


def _count(item: pytest.Item) -> int:
    mark = item.get_closest_marker("drawn")
    assert mark is not None
    (count,) = mark.args
    return int(count)


def _draw(item: pytest.Item) -> bytes:
    return hashlib.sha256(f"{SEED} {item.nodeid}".encode()).digest()
