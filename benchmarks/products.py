"""Products with sums of Kronecker blocks of few input directions; run as `python -m benchmarks.products`.

The layer is the mlp's first, of MNIST with factors that the paper's format cuts to rank 188, and of CIFAR-10 with as
many directions as a client has images or as our codec keeps, which leaves one number for the others. `LowRankSum`
is compared with `KroneckerSum`, which multiplies by whole factors. The last two columns count what finding the
directions takes, or looking for them in vain.

Then layers of MobileNetV2 whose groups of rows have a matrix each: `GroupedKroneckerSum` multiplies by all of them at
once. It is compared with a `KroneckerSum` for each, one after another.
"""

import argparse
import time
from collections.abc import Sequence
from functools import partial

import torch

from benchmarks.timing import alternate
from fedfisher_core.fisher.kronecker import GroupedKroneckerSum, Kronecker, KroneckerSum
from fedfisher_core.fisher.low_rank import shortened

OUTPUTS = 400
CASES = (
    ("MNIST, paper's format, 5 clients", 5, 784, 188, 0.0),
    ("MNIST, paper's format, 30 clients", 30, 784, 188, 0.0),
    ("MNIST, all directions, 5 clients", 5, 784, 784, 0.0),
    ("CIFAR-10, 566 images a client, 5 clients", 5, 3072, 566, 0.0),
    ("CIFAR-10, cut to 962 directions, 5 clients", 5, 3072, 962, 1e-3),
    ("CIFAR-10, cut to 700 directions, 10 clients", 10, 3072, 700, 1e-3),
)
GROUPED = (("depthwise convolution, 960 channels", 960, 9), ("normalisation, 1280 channels", 1280, 2))
GROUPED_CLIENTS = 5
# The authors' optimiser multiplies as often, and our conjugate gradients.
MANY, FEW = 2000, 80


def drawn(clients: int, inputs: int, rank: int, rest: float) -> KroneckerSum:
    """Draw the blocks of several clients, with input factors of one rank plus a multiple of the identity."""
    generator = torch.Generator().manual_seed(0)
    blocks = []
    for _ in range(clients):
        # A codec's matrix is made in double precision.
        seen = torch.randn(rank, inputs, generator=generator, dtype=torch.float64) / rank**0.5
        gradients = torch.randn(OUTPUTS, OUTPUTS, generator=generator) / OUTPUTS**0.5
        blocks.append(Kronecker((seen.T @ seen + rest * torch.eye(inputs)).float(), gradients @ gradients.T))
    return KroneckerSum.of(blocks, [1 / clients] * clients)


def drawn_groups(groups: int, inputs: int) -> GroupedKroneckerSum:
    """Draw the blocks of a layer whose groups have one row each."""
    generator = torch.Generator().manual_seed(0)
    seen = torch.randn(groups, GROUPED_CLIENTS, inputs, inputs, generator=generator)
    gradients = torch.rand(groups, GROUPED_CLIENTS, 1, 1, generator=generator)
    return GroupedKroneckerSum(seen @ seen.mT, gradients)


def one_by_one(totals: Sequence[KroneckerSum], matrices: torch.Tensor) -> torch.Tensor:
    """Multiply each matrix by its own sum."""
    return torch.stack([total.product(matrix) for total, matrix in zip(totals, matrices, strict=True)])


def main() -> None:
    """Print seconds of a product and what finding the directions comes to; then those of groups."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    print(f"{'':44} {'whole':>9} {'short':>9} {'ratio':>6} {'finding':>9}  {MANY} products  {FEW} products")
    for name, clients, inputs, rank, rest in CASES:
        total = drawn(clients, inputs, rank, rest)
        begun = time.perf_counter()
        short = shortened(total)
        finding = time.perf_counter() - begun
        vector = torch.randn(OUTPUTS, inputs, generator=torch.Generator().manual_seed(1))
        whole, few = alternate(partial(total.product, vector), partial(short.product, vector), repeats=repeats)
        gains = [count * whole / (count * few + finding) for count in (MANY, FEW)]
        print(
            f"{name:44} {whole:7.4f} s {few:7.4f} s {whole / few:6.2f} {finding:7.3f} s"
            f"  {gains[0]:8.2f} times {gains[1]:8.2f} times"
        )
    print(f"\n{'':44} {'each':>9} {'all':>9} {'ratio':>6}")
    for name, groups, inputs in GROUPED:
        grouped = drawn_groups(groups, inputs)
        matrices = torch.randn(groups, 1, inputs, generator=torch.Generator().manual_seed(1))
        totals = [
            KroneckerSum(inputs=own.flatten(0, 1), outputs=gradients.flatten(0, 1))
            for own, gradients in zip(grouped.inputs, grouped.outputs, strict=True)
        ]
        each, every = alternate(
            partial(one_by_one, totals, matrices), partial(grouped.product, matrices), repeats=repeats
        )
        print(f"{name:44} {each:7.4f} s {every:7.4f} s {each / every:6.2f}")


if __name__ == "__main__":
    main()
