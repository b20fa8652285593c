"""Predictions for 10,000 images, by the number of images that a network looks at together.

    python -m benchmarks.evaluation [--turns 5]

The alternative is one of 1,000 images. Both run on one thread, in turns, on random images of MNIST's size; the logits
must be the same to the last bit.
"""

import argparse

import torch

from benchmarks.timing import alternate
from fedfisher_core.data.layouts import Images
from fedfisher_core.models.evaluation import logits
from fedfisher_core.models.spec import ModelSpec

IMAGES, ALTERNATIVE = 10_000, 1000


def main() -> None:
    """Print the ratio for each small network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5, help="of both sides (5)")
    turns = parser.parse_args().turns
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(IMAGES, 1, 28, 28, generator=generator)
    print(f"{IMAGES} images, one thread, median of {turns}")
    for name in ("mlp", "lenet", "cnn"):
        spec = ModelSpec(name, Images(1, 28, 28), classes=10)
        network = spec.load(spec.initialise(generator)).eval()

        @torch.no_grad()
        def alternative(network: torch.nn.Module = network) -> torch.Tensor:
            return torch.cat([network(batch) for batch in inputs.split(ALTERNATIVE)])

        def ours(network: torch.nn.Module = network) -> torch.Tensor:
            return logits(network, inputs)

        same = torch.equal(ours(), alternative())
        own, other = alternate(ours, alternative, repeats=turns)
        print(
            f"  {name:5} {own:.3f} s, {ALTERNATIVE} images together {other:.3f} s, ratio {other / own:.2f}, "
            f"logits {'the same' if same else 'DIFFER'}"
        )


if __name__ == "__main__":
    main()
