"""Accuracy of Gaussian distillation against the seconds of its server: steps, inputs a step, and learning rates.

    FEDFISHER_DATA_DIR=... python -m benchmarks.distillation_steps [--seeds 101 102 103] [--datasets mnist cifar10]

Five clients at alpha 0.1 train for ten epochs, and nothing is compressed. Accuracies are of 5,000 training images that
no client trained on, with seeds that no report has. A difference is to the defaults, over the same seeds, with the 95 %
interval of the pair alone. Seconds are of one thread of a processor. `ratio` divides them, the solution of
FedFisher(K-FAC) included, by those of that solution alone, and is the median over seeds.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.differences import columns
from benchmarks.imagined import as_it_is
from benchmarks.pseudo_inputs import LEARNING_RATE, SAMPLES, STEPS, federations_of, started, trained
from fedfisher_core.methods.distillation.pseudo_inputs import Local, distil
from fedfisher_core.models.evaluation import accuracy
from fedfisher_core.reporting.measure import Measure

MODELS = {"mnist": "mlp", "fashion_mnist": "lenet", "cifar10": "lenet"}
DEFAULTS = (STEPS, SAMPLES, LEARNING_RATE)
GRID = (
    *((steps, samples, LEARNING_RATE) for steps in (50, 100, 200, STEPS) for samples in (16, 32, SAMPLES, 128)),
    *((steps, SAMPLES, rate) for steps in (50, 100) for rate in (2e-3, 4e-3)),
)


def measure(dataset: str, model: str, seeds: Sequence[int], store: Path) -> None:
    """Print the table of one setting."""
    rights: dict[tuple[int, int, float], dict[int, float]] = {}
    seconds: dict[tuple[int, int, float], list[float]] = {}
    ratios: dict[tuple[int, int, float], list[float]] = {}
    first: dict[int, float] = {}
    federations = federations_of(dataset, model, seeds, store)
    for one in federations.all:
        federation, seed = trained(federations, one), one.setting.seed
        began = time.process_time()
        begun = started(federation, prior=0.0)
        solved = time.process_time() - began
        first[seed] = accuracy(federation.server.network(begun), federation.held_out)
        drawn = [Local(client.network, as_it_is(client), client.share) for client in federation.clients]
        for steps, samples, rate in GRID:
            student, generator = federation.server.network(begun), torch.Generator().manual_seed(seed)
            began = time.process_time()
            distil(student, drawn, steps=steps, samples=samples, learning_rate=rate, generator=generator)
            took = time.process_time() - began
            key = (steps, samples, rate)
            rights.setdefault(key, {})[seed] = accuracy(student, federation.held_out)
            seconds.setdefault(key, []).append(took)
            ratios.setdefault(key, []).append((solved + took) / solved)
            print(f"{dataset} {model} {seed} {key}: {100 * rights[key][seed]:.2f} %", file=sys.stderr, flush=True)
    print(f"\n{dataset}, {model}, {len(seeds)} seeds; start {Measure.of(list(first.values())).percent()} %")
    print(f"{'steps':>5}{'inputs':>8}{'rate':>8}  {'accuracy, %':16}{'less the defaults':28}{'seconds':>8}{'ratio':>7}")
    for key in sorted(GRID, key=lambda key: statistics.median(seconds[key])):
        print(
            f"{key[0]:5}{key[1]:8}{key[2]:8g}  {columns(rights[key], rights[DEFAULTS])}"
            f"{statistics.median(seconds[key]):8.1f}{statistics.median(ratios[key]):7.0f}"
        )


def main() -> None:
    """Measure the grid in every setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[101, 102, 103])
    parser.add_argument("--datasets", nargs="+", choices=MODELS, default=["mnist", "fashion_mnist"])
    parser.add_argument("--store", type=Path, help="keeps the clients (a folder that is removed)")
    options = parser.parse_args()
    if "FEDFISHER_DATA_DIR" not in os.environ:
        print("skipped: FEDFISHER_DATA_DIR is not set, and this needs files of the data sets")
        return
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        for dataset in options.datasets:
            measure(dataset, MODELS[dataset], options.seeds, options.store or Path(temporary))


if __name__ == "__main__":
    main()
