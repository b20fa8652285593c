"""How many directions the classes of a client share out, and of how many frequencies, in mixture distillation.

    FEDFISHER_DATA_DIR=... python -m benchmarks.class_moments [--settings cifar10 fashion_mnist mnist]

Five clients at alpha 0.1 train for ten epochs, and nothing is compressed. Accuracies are of training images that no
client trained on, with seeds that no report has. A difference is to Gaussian distillation, and one or two seeds carry
no interval. `numbers` counts means, directions and deviations, which a client sends as well as its network and its
K-FAC.
"""

import argparse
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks.imagined import Client, Imagine, as_it_is
from benchmarks.pseudo_inputs import (
    Parameters,
    Trained,
    Variant,
    accuracy_of,
    federations_of,
    started,
    trained,
)
from fedfisher_core.client.statistics.class_moments import ClassMoments
from fedfisher_core.methods.distillation.pseudo_inputs import Draw, mixture
from fedfisher_core.models.spec import ModelSpec

# Directions, and frequencies along each side of an image; 32 are all that there are.
GRID = ((60, 32), (240, 32), (60, 14), (600, 8), (240, 12), (240, 14), (240, 16))


@dataclass(frozen=True)
class Setting:
    """Federations that clients are trained in.

    Args:
        model: the network.
        seeds: one federation each.
        data: settings of the data other than the data set.
    """

    model: str
    seeds: tuple[int, ...]
    data: dict[str, int] = field(default_factory=dict)


SETTINGS = {
    "cifar10": Setting("lenet", (100, 101), {"examples": 10_000, "held_out": 2000}),
    "fashion_mnist": Setting("lenet", (100,)),
    "mnist": Setting("mlp", (100,)),
}


def of_classes(directions: int, frequencies: int) -> Imagine:
    """Draw as mixture distillation does."""

    def make(client: Client) -> Draw:
        moments = ClassMoments.compute(client.local(client.examples), directions=directions, frequencies=frequencies)
        return mixture(moments, client.shape)

    return make


def numbers_of(spec: ModelSpec, directions: int, frequencies: int) -> int:
    """Count what a client sends."""
    shapes = ClassMoments.shapes(spec, directions=directions, frequencies=frequencies)
    return sum(shape.numel() for shape in shapes.values())


def percent(imagine: Imagine, federation: Trained, begun: Parameters, seed: int) -> float:
    """Distil on inputs of one kind, and measure the result on images that no client trained on."""
    # What is sent is counted by its shapes.
    return 100 * accuracy_of(Variant(imagine, numbers=lambda size, held: 0), federation, begun, seed)


def measure(dataset: str, setting: Setting, store: Path) -> None:
    """Print the accuracy of every choice in one setting."""
    federations = federations_of(dataset, setting.model, setting.seeds, store, **setting.data)
    for one in federations.all:
        federation, seed = trained(federations, one), one.setting.seed
        begun = started(federation, prior=0.0)
        whole = percent(as_it_is, federation, begun, seed)
        print(f"\n{dataset}, {setting.model}, seed {seed}")
        print(f"{'gaussian_distillation':40}{whole:6.2f} %", flush=True)
        for directions, frequencies in GRID:
            found = percent(of_classes(directions, frequencies), federation, begun, seed)
            sent = numbers_of(one.spec, directions, frequencies)
            name = f"{directions} directions of {frequencies} frequencies"
            print(f"{name:40}{found:6.2f} %{found - whole:8.2f}{sent:10,}", flush=True)


def main() -> None:
    """Measure all choices in every setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", choices=tuple(SETTINGS), default=list(SETTINGS))
    options = parser.parse_args()
    if "FEDFISHER_DATA_DIR" not in os.environ:
        print("skipped: FEDFISHER_DATA_DIR is not set, and this needs CIFAR-10, Fashion-MNIST and MNIST")
        return
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as store:
        for dataset in options.settings:
            measure(dataset, SETTINGS[dataset], Path(store))


if __name__ == "__main__":
    main()
