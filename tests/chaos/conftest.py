"""Prints the seed of the chaos; `CHAOS=1 CHAOS_SEED=<seed> pytest tests/chaos` replays it (see scale.py)."""

import pytest

from tests.chaos.scale import SEED


def pytest_report_header() -> str:
    return f"CHAOS_SEED={SEED}"


@pytest.fixture(autouse=True)
def _tell_the_seed() -> None:
    """Have the seed among what pytest shows of a test that fails."""
    print(f"CHAOS_SEED={SEED}")
