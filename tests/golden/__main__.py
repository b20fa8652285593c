"""Freeze golden numbers: `python -m tests.golden [SORT ...]`, all of them without a sort."""

import argparse
import tempfile
from pathlib import Path

from tests.golden.experiments import surroundings
from tests.golden.frozen import SORTS, freeze


def main() -> None:
    """Write the numbers as the code has them now."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sorts", nargs="*", metavar="SORT", help=f"{', '.join(SORTS)} (all)")
    chosen = parser.parse_args().sorts or list(SORTS)
    with tempfile.TemporaryDirectory() as folder, surroundings(Path(folder)):
        for sort in chosen:
            freeze(sort)


if __name__ == "__main__":
    main()
