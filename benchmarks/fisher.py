"""Speed, memory and cost to a client of the diagonal and K-FAC Fisher; run as `python -m benchmarks.fisher`.

Compares one pass of `compute_fisher` with the two calls that nngeometry 0.3 needs, on the same network and data, and
either with the local training that precedes it (30 epochs of batch-64 SGD with momentum). With FEDFISHER_DATA_DIR set
the images are MNIST's (and CIFAR-10's, where the folder has them), otherwise random. The last lines say which targets
are met, by the clock. Peak memory is read from Linux's /proc.
"""

import argparse
import io
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.engine import MEMORY_LIMIT, compute_fisher
from fedfisher_core.fisher.estimators import MonteCarlo
from fedfisher_core.fisher.nngeometry_backend import compute as compute_by_nngeometry

CLASSES = 10
EPOCHS = 30
BATCH = 64
BOTH = frozenset({Approximation.DIAGONAL, Approximation.KFAC})
MEMORY_TARGET = 2**30


def lenet() -> nn.Module:
    """LeNet for 28 x 28 images, without biases."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, bias=False), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5, bias=False), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(256, 120, bias=False), nn.ReLU()),
        *(nn.Linear(120, 84, bias=False), nn.ReLU(), nn.Linear(84, CLASSES, bias=False)),
    )


def mlp() -> nn.Module:
    """A multi-layer perceptron for 28 x 28 images, without biases."""
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(784, 400, bias=False), nn.ReLU(), nn.Linear(400, 200, bias=False), nn.ReLU()),
        *(nn.Linear(200, 100, bias=False), nn.ReLU(), nn.Linear(100, CLASSES, bias=False)),
    )


def cnn() -> nn.Module:
    """A convolutional network for 32 x 32 colour images, without biases."""
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 5, bias=False), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5, bias=False), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1600, 512, bias=False), nn.ReLU()),
        *(nn.Linear(512, 128, bias=False), nn.ReLU(), nn.Linear(128, CLASSES, bias=False)),
    )


@dataclass(frozen=True)
class Case:
    """One network and what it is measured on.

    Args:
        build: makes the network.
        dataset: folder of its real images.
        shape: shape of an image.
        examples: images measured.
        batches: batch sizes that nngeometry is tried with.
        speedup: how many times faster than nngeometry it must be, with each batch size.
        overheads: largest shares of the local training that the exact and the Monte-Carlo Fisher may take.
    """

    build: Callable[[], nn.Module]
    dataset: str
    shape: tuple[int, int, int]
    examples: int
    batches: tuple[int, ...]
    speedup: float
    overheads: Mapping[str, float]


OVERHEADS = {"exact": 0.125, "Monte-Carlo": 0.04}
CASES = {
    "lenet": Case(lenet, "mnist", (1, 28, 28), 2048, (64, 256), 5, OVERHEADS),
    "mlp": Case(mlp, "mnist", (1, 28, 28), 4096, (64, 256), 5, OVERHEADS),
    "cnn": Case(cnn, "cifar10", (3, 32, 32), 512, (64, 256), 3, {}),
}


def images(case: Case) -> tuple[Tensor, Tensor, str]:
    """Real images and labels where there are any, otherwise random ones."""
    file = Path(os.environ.get("FEDFISHER_DATA_DIR", "")) / case.dataset / "train.parquet"
    if "FEDFISHER_DATA_DIR" not in os.environ or not file.is_file():
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(case.examples, *case.shape, generator=generator)
        return inputs, torch.randint(CLASSES, (case.examples,), generator=generator), "random images"
    rows = next(pyarrow.parquet.ParquetFile(file).iter_batches(case.examples)).to_pydict()
    column = "image" if "image" in rows else "img"
    pixels = np.stack([np.asarray(Image.open(io.BytesIO(cell["bytes"]))) for cell in rows[column]])
    inputs = torch.from_numpy(pixels).float().div_(255).reshape(case.examples, *case.shape[1:], case.shape[0])
    inputs = inputs.permute(0, 3, 1, 2).contiguous()
    return (inputs - inputs.mean()) / inputs.std(), torch.tensor(rows["label"]), case.dataset


def train_one_epoch(model: nn.Module, inputs: Tensor, labels: Tensor) -> None:
    """Local training as the paper does it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for chunk in torch.randperm(len(inputs)).split(BATCH):
        optimizer.zero_grad()
        F.cross_entropy(model(inputs[chunk]), labels[chunk]).backward()
        optimizer.step()


@dataclass(frozen=True)
class Timing:
    """Median seconds of a function, by the clock and of processor time (all threads, with their waiting loops)."""

    wall: float
    processor: float


def median_times(functions: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, Timing]:
    """Time functions after a warm-up, called in turn so that other load on the machine falls on all of them."""
    wall: dict[str, list[float]] = {name: [] for name in functions}
    processor: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    for _ in range(repeats):
        for name, function in functions.items():
            wall_start, processor_start = time.perf_counter(), time.process_time()
            function()
            wall[name].append(time.perf_counter() - wall_start)
            processor[name].append(time.process_time() - processor_start)
    return {name: Timing(statistics.median(wall[name]), statistics.median(processor[name])) for name in functions}


def peak_memory(name: str, threads: int) -> int:
    """Bytes that a pass takes at its peak beyond what a fresh process with model and data holds."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak_memory_here, (name, threads))


def _peak_memory_here(name: str, threads: int) -> int:
    torch.set_num_threads(threads)
    inputs, _, _ = images(CASES[name])
    model = CASES[name].build()
    with torch.no_grad():
        model(inputs[:64])
    # Reading the images took memory too: set the peak back to what is in use now.
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    compute_fisher(model, inputs)
    return _status("VmHWM") - before


def _status(field: str) -> int:
    """Bytes of one of the kernel's counters of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


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
    torch.manual_seed(0)
    inputs, labels, source = images(case)
    model = case.build()
    generator = torch.Generator().manual_seed(0)
    functions: dict[str, Callable[[], object]] = {
        "epoch of training": lambda: train_one_epoch(model, inputs, labels),
        "exact": lambda: compute_fisher(model, inputs),
        "Monte-Carlo": lambda: compute_fisher(model, inputs, estimator=MonteCarlo(1), generator=generator),
    }
    for size in case.batches:
        functions[f"nngeometry, batches of {size}"] = partial(
            compute_by_nngeometry, model, inputs, approximations=BOTH, batch_size=size
        )
    times = median_times(functions, repeats)
    print(f"{name}: {len(inputs)} {source}, {threads} threads, memory limit {MEMORY_LIMIT >> 20} MiB")
    print(f"  {'us an example':30} {'wall':>9} {'processor':>11} {'of ' + str(EPOCHS) + ' epochs':>13}")
    training = times["epoch of training"].wall * EPOCHS
    for label, timing in times.items():
        wall, processor = (seconds / len(inputs) * 1e6 for seconds in (timing.wall, timing.processor))
        print(f"  {label:30} {wall:9.1f} {processor:11.1f} {timing.wall / training:13.1%}", flush=True)
    targets = []
    for size in case.batches:
        ratio = times[f"nngeometry, batches of {size}"].wall / times["exact"].wall
        shown = f"{ratio:.2f} times (at least {case.speedup:g})"
        targets.append(Target(f"{name}: faster than nngeometry, batches of {size}", shown, ratio >= case.speedup))
    for label, limit in case.overheads.items():
        share = times[label].wall / training
        shown = f"{share:.1%} (at most {limit:.1%})"
        targets.append(Target(f"{name}: {label}, of {EPOCHS} epochs", shown, share <= limit))
    peak = peak_memory(name, threads)
    shown = f"{peak / 2**20:.0f} MiB (below {MEMORY_TARGET >> 20})"
    return [*targets, Target(f"{name}: peak working memory", shown, peak < MEMORY_TARGET)]


def main() -> None:
    """Measure the networks named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=list(CASES), help=f"of {', '.join(CASES)}")
    parser.add_argument("--repeats", type=int, default=5)
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
