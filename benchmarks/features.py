"""Images that a trunk looks at in a second, against a bare batched forward pass of the same network.

    FEDFISHER_DATA_DIR=... python -m benchmarks.features [--trunk mobilenet_v2] [--images 2000] [--size 96]

`features` is what the job computes: pixels as they are stored go in, features come out. `bare` runs the network on
batches that were prepared before and keeps nothing. Both run on one thread, in turns.
"""

import argparse

import torch

from benchmarks.scale import report, seconds_of
from fedfisher_core.data.sources import find_source, read_dataset
from fedfisher_core.federation.decoding import BATCH_SIZE, features_of
from fedfisher_core.models.trunks.trunk import Trunk, load_trunk, prepare, trunks

_TURNS = 3
SLOWER_THAN_BARE = 1 / 0.9


def main() -> None:
    """Print seconds of both sides, and what was wanted of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trunk", default="mobilenet_v2", help="the pre-trained network (mobilenet_v2)")
    parser.add_argument("--images", type=int, default=2000, help="of CIFAR-10 (2000)")
    parser.add_argument("--size", type=int, default=96, help="height and width that they are brought to (96)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    trunk, cpu = trunks.get(options.trunk), torch.device("cpu")
    if not isinstance(trunk, Trunk):
        parser.error(f"--trunk={options.trunk}; allowed: trunks of images")
    network = load_trunk(trunk)
    pixels = read_dataset(find_source("cifar10")).test.inputs[: options.images]
    batches = [prepare(trunk, batch, options.size) for batch in pixels.split(BATCH_SIZE)]

    def bare() -> None:
        with torch.inference_mode():
            for batch in batches:
                network(batch)

    def features() -> None:
        features_of(network, trunk, pixels, image_size=options.size, device=cpu)

    bare()
    spent = {"features": 0.0, "bare": 0.0}
    for _ in range(_TURNS):
        spent["features"] += seconds_of(features)
        spent["bare"] += seconds_of(bare)
    rates = ", ".join(f"{side} {_TURNS * len(pixels) / took:.0f} images/s" for side, took in spent.items())
    print(f"{options.trunk}: {len(pixels)} images at {options.size} x {options.size}: {rates}")
    report("features", "bare", spent, SLOWER_THAN_BARE)


if __name__ == "__main__":
    main()
