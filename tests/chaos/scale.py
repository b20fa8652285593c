"""How much chaos: settings and payloads a little with all tests, all else by `make chaos` alone, which sets CHAOS=1.

What is random follows CHAOS_SEED, a number that is printed. Without it, `make chaos` draws another one each time, and
`make test` takes 0: the same code has the same verdict. The processes that pytest starts inherit it.
"""

import os
import secrets

CHAOS = os.environ.get("CHAOS") == "1"
SEED = int(os.environ.setdefault("CHAOS_SEED", str(secrets.randbelow(2**32) if CHAOS else 0)))


def scaled(*, test: int, chaos: int) -> int:
    """How often something is to be tried.

    Args:
        test: with all tests.
        chaos: by `make chaos`.

    Returns:
        One of the two.
    """
    return chaos if CHAOS else test


def parts(total: int, most: int) -> list[tuple[int, int]]:
    """Divide what is to be tried among tests that can run side by side.

    Args:
        total: how often in all.
        most: in one test.

    Returns:
        Number and share of each test; the shares sum to the total.
    """
    return [(first // most, min(most, total - first)) for first in range(0, total, most)]
