"""How much chaos: a little with all tests, and much by `make chaos`, which sets CHAOS=1.

What is random follows CHAOS_SEED, a number; without it, another one each time, which is printed.
"""

import os
import secrets

SEED = int(os.environ.get("CHAOS_SEED") or secrets.randbelow(2**32))


def scaled(*, test: int, chaos: int) -> int:
    """How often something is to be tried.

    Args:
        test: with all tests.
        chaos: by `make chaos`.

    Returns:
        One of the two.
    """
    return chaos if os.environ.get("CHAOS") == "1" else test
