"""Speed, memory and cost to a client of the diagonal and K-FAC Fisher; run as `python -m benchmarks.fisher`.

Compares one pass of `compute_fisher` with the two calls that nngeometry 0.3 needs, on the same network and data, and
either with the local training that precedes it (30 epochs of SGD with momentum in batches of 64). The images are the
embedded digits and, with FEDFISHER_DATA_DIR set, CIFAR-10's, otherwise random ones. The last lines say which targets
are met, by the clock.
"""

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from fedfisher_core.client.training import train
from fedfisher_core.data.layouts import Images
from fedfisher_core.data.sources import find_source, read_dataset
from fedfisher_core.data.tensors import Examples, select
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.engine import MEMORY_LIMIT, compute_fisher
from fedfisher_core.fisher.estimators import MonteCarlo
from fedfisher_core.fisher.nngeometry_backend import compute as compute_by_nngeometry
from fedfisher_core.models.memory import working_memory
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import TrainSettings

EPOCHS = 30
BATCHES = (64, 256)
BOTH = frozenset({Approximation.DIAGONAL, Approximation.KFAC})
MEMORY_TARGET = 2**30


@dataclass(frozen=True)
class Case:
    """One network and what it is measured on.

    Args:
        spec: the network.
        dataset: its images.
        examples: how many of them.
        speedup: how many times faster than nngeometry it must be, with each batch size.
        overheads: largest shares of the local training that the exact and the Monte-Carlo Fisher may take.
    """

    spec: ModelSpec
    dataset: str
    examples: int
    speedup: float
    overheads: Mapping[str, float]


OVERHEADS = {"exact": 0.125, "Monte-Carlo": 0.04}
CASES = {
    "lenet": Case(ModelSpec("lenet", Images(1, 28, 28), classes=10), "mnist5k", 2048, 5, OVERHEADS),
    "mlp": Case(ModelSpec("mlp", Images(1, 28, 28), classes=10), "mnist5k", 4000, 5, OVERHEADS),
    "cnn": Case(ModelSpec("cnn", Images(3, 32, 32), classes=10), "cifar10", 512, 3, {}),
}


def images(case: Case) -> tuple[Examples, str]:
    """Real images and labels where there are any, otherwise random ones."""
    spec = case.spec
    if case.dataset != "mnist5k" and "FEDFISHER_DATA_DIR" not in os.environ:
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(case.examples, *spec.inputs.shape, generator=generator)
        labels = torch.randint(spec.classes, (case.examples,), generator=generator)
        return Examples(inputs=inputs, labels=labels), "random images"
    dataset = read_dataset(find_source(case.dataset))
    return select(dataset.train, dataset.spec, torch.arange(case.examples)), f"images of {case.dataset}"


@dataclass(frozen=True)
class Timing:
    """Seconds of one call, by the clock and of processor time (all threads, with their waiting loops)."""

    wall: float
    processor: float


def time_in_turn(functions: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[Timing]]:
    """Time functions after a warm-up, called in turn so that other load on the machine falls on all of them."""
    times: dict[str, list[Timing]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    for _ in range(repeats):
        for name, function in functions.items():
            wall_start, processor_start = time.perf_counter(), time.process_time()
            function()
            times[name].append(Timing(time.perf_counter() - wall_start, time.process_time() - processor_start))
    return times


def median_ratio(numerators: Sequence[Timing], denominators: Sequence[Timing]) -> float:
    """Median over the turns of a ratio by the clock; a machine's speed drifts less within a turn than between two."""
    pairs = zip(numerators, denominators, strict=True)
    return statistics.median(numerator.wall / denominator.wall for numerator, denominator in pairs)


def peak_memory(name: str, threads: int) -> int:
    """Bytes that a pass takes at its peak beyond what a fresh process with model and data holds."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak_memory_here, (name, threads))


def _peak_memory_here(name: str, threads: int) -> int:
    torch.set_num_threads(threads)
    case = CASES[name]
    spec = case.spec
    inputs = torch.randn(case.examples, *spec.inputs.shape)
    model = spec.load(spec.initialise(torch.Generator().manual_seed(0)))
    with torch.no_grad():
        model(inputs[:64])
    with working_memory(inputs.device) as peak:
        compute_fisher(model, inputs)
    return peak.bytes


@dataclass(frozen=True)
class Target:
    """A figure and the bound that it must keep.

    Args:
        what: what was measured.
        shown: the figure and its bound, to read.
        met: whether it keeps the bound.
    """

    what: str
    shown: str
    met: bool


def measure(name: str, *, repeats: int, threads: int) -> list[Target]:
    """Print one network's times, and judge them by its targets."""
    case = CASES[name]
    examples, source = images(case)
    inputs = examples.inputs
    generator = torch.Generator().manual_seed(0)
    model = case.spec.load(case.spec.initialise(generator))
    trained = case.spec.load(case.spec.initialise(generator))
    epoch = TrainSettings(epochs=1, batch_size=64)
    functions: dict[str, Callable[[], object]] = {
        "epoch of training": lambda: train(trained, examples, epoch, generator=generator),
        "exact": lambda: compute_fisher(model, inputs),
        "Monte-Carlo": lambda: compute_fisher(model, inputs, estimator=MonteCarlo(1), generator=generator),
    }
    for size in BATCHES:
        functions[f"nngeometry, batches of {size}"] = partial(
            compute_by_nngeometry, model, inputs, approximations=BOTH, batch_size=size
        )
    times = time_in_turn(functions, repeats)
    print(f"{name}: {len(inputs)} {source}, {repeats} turns, {threads} threads, memory limit {MEMORY_LIMIT >> 20} MiB")
    print(f"  {'medians, us an example':30} {'wall':>9} {'processor':>11} {'of ' + str(EPOCHS) + ' epochs':>13}")
    epochs = times["epoch of training"]
    shares = {label: median_ratio(calls, epochs) / EPOCHS for label, calls in times.items()}
    for label, calls in times.items():
        wall = statistics.median(call.wall for call in calls) / len(inputs) * 1e6
        processor = statistics.median(call.processor for call in calls) / len(inputs) * 1e6
        print(f"  {label:30} {wall:9.1f} {processor:11.1f} {shares[label]:13.1%}", flush=True)
    targets = []
    for size in BATCHES:
        ratio = median_ratio(times[f"nngeometry, batches of {size}"], times["exact"])
        shown = f"{ratio:.2f} times (at least {case.speedup:g})"
        targets.append(Target(f"{name}: faster than nngeometry, batches of {size}", shown, ratio >= case.speedup))
    for label, limit in case.overheads.items():
        shown = f"{shares[label]:.1%} (at most {limit:.1%})"
        targets.append(Target(f"{name}: {label}, of {EPOCHS} epochs", shown, shares[label] <= limit))
    peak = peak_memory(name, threads)
    shown = f"{peak / 2**20:.0f} MiB (below {MEMORY_TARGET >> 20})"
    return [*targets, Target(f"{name}: peak working memory", shown, peak < MEMORY_TARGET)]


def main() -> None:
    """Measure the networks named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=list(CASES), help=f"of {', '.join(CASES)}")
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    targets = [
        target
        for name in arguments.networks
        for target in measure(name, repeats=arguments.repeats, threads=arguments.threads)
    ]
    for target in targets:
        print(f"{'met   ' if target.met else 'MISSED'}  {target.what:45} {target.shown}")


if __name__ == "__main__":
    main()
