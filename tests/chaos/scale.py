"""How much chaos: a little with all tests, and much by `make chaos`, which sets CHAOS=1.

What is random follows CHAOS_SEED, a number; without it, another one each time, which is printed. The processes that
pytest starts inherit it.
"""

import os
import secrets

SEED = int(os.environ.setdefault("CHAOS_SEED", str(secrets.randbelow(2**32))))


def scaled(*, test: int, chaos: int) -> int:
    """How often something is to be tried.

    Args:
        test: with all tests.
        chaos: by `make chaos`.

    Returns:
        One of the two.
    """
    return chaos if os.environ.get("CHAOS") == "1" else test


def parts(total: int, most: int) -> list[tuple[int, int]]:
    """Divide what is to be tried among tests that can run side by side.

    Args:
        total: how often in all.
        most: in one test.

    Returns:
        Number and share of each test; the shares sum to the total.
    """
    return [(first // most, min(most, total - first)) for first in range(0, total, most)]
